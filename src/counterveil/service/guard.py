"""Limits on requests before anything reads them, and headers on every answer.

Plain ASGI: bodies pass through as they come. What is checked: the host that was asked for (a page
elsewhere whose name is made to point here is refused), the origin of a browser's request, the
length of a body, and how long it takes to arrive.
"""

import asyncio
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterveil.service.responses import STREAM, Problem

SECONDS_FOR_BODY = 20.0  # between two pieces of a body
SECONDS_TO_TAKE = 60.0  # until a client has taken a piece of an answer
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Stands before the routes. `hosts`: names that this service has, in small letters."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        most_bytes: int,
        seconds: float = SECONDS_FOR_BODY,
    ) -> None:
        self.app, self.hosts = app, frozenset(hosts)
        self.most_bytes, self.seconds = most_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, begun = Headers(scope=scope), False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                found = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in HEADERS.items():
                    found.setdefault(name, value)
            async with asyncio.timeout(SECONDS_TO_TAKE):
                await send(message)

        try:
            self._check(headers)
            await self.app(scope, self._limited(receive, headers), send_with_headers)
        except Problem as problem:
            if begun:
                raise
            await problem.response()(scope, receive, send_with_headers)
        except TimeoutError:
            return  # the client does not read: the server closes the connection

    def _check(self, headers: Headers) -> None:
        host = _name_of(headers.get("host", ""))
        if host not in self.hosts:
            raise Problem(421, "another host was asked for", "Use the address of this service.")
        origin = headers.get("origin")  # "null" is no name of a host
        foreign = origin is not None and _name_of(origin.partition("://")[2]) != host
        if foreign or headers.get("sec-fetch-site") == "cross-site":
            raise Problem(403, "a page of another origin asked", "Ask from a server instead.")
        length = headers.get("content-length", "0")
        if not length.isdigit() or (not _streams(headers) and int(length) > self.most_bytes):
            raise self._too_long()

    def _limited(self, receive: Receive, headers: Headers) -> Receive:
        """`receive` that refuses long and slow bodies; a stream is limited by line and time."""
        come, whole, streams = 0, False, _streams(headers)

        async def limited() -> Message:
            nonlocal come, whole
            if whole:  # whoever asks now waits for the client to leave
                return await receive()
            try:
                async with asyncio.timeout(self.seconds):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, "the body takes too long", "Send it at once.") from None
            whole = not message.get("more_body", False)
            come += len(message.get("body", b""))
            if not streams and come > self.most_bytes:
                raise self._too_long()
            return message

        return limited

    def _too_long(self) -> Problem:
        most = self.most_bytes // 1000
        detail = f"At most {most} kB; send many rows as {STREAM}."
        return Problem(413, "the body is too long", detail)


def _streams(headers: Headers) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == STREAM


def _name_of(host: str) -> str:
    """A host without its port, in small letters."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def own_hosts(host: str, named: Collection[str]) -> set[str]:
    """The names that a service on this address has, with those that its owner gave it."""
    loopback = {"localhost", "127.0.0.1", "[::1]"}
    own = {_name_of(each) for each in named}
    if host in {"0.0.0.0", "::"}:
        return own | loopback
    bare = f"[{host}]" if ":" in host else host.lower()
    return own | (loopback if bare in loopback else {bare})


def is_local(host: Any) -> bool:
    """Whether an address is of this machine alone."""
    return str(host) in {"127.0.0.1", "localhost", "::1"}
