"""Limits on requests before anything reads them, and headers on every answer.

Plain ASGI: bodies pass through as they come. What is checked: the host that was asked for (a page
elsewhere whose name is made to point here is refused), the origin of a browser's request, the
length of a body, and how long it takes to arrive. Every body is limited, whatever it says of
itself; a route that reads one line by line lifts the limit on its length (`in_pieces`).
"""

import asyncio
import re
import time
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterveil.service.responses import STREAM, Problem

SECONDS_FOR_PIECE = 20.0  # between two pieces of a body
SECONDS_FOR_BODY = 60.0  # for all of it
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
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_BODY = "counterveil.body"  # in a scope of ASGI
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d+)?")


class Guard:
    """Stands before the routes. `hosts`: names that this service has, in small letters."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        most_bytes: int,
        seconds: tuple[float, float] = (SECONDS_FOR_PIECE, SECONDS_FOR_BODY),
    ) -> None:
        self.app, self.hosts = app, frozenset(hosts)
        self.most_bytes, self.seconds = most_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, begun = Headers(scope=scope), False
        body = Body(receive, headers, self.most_bytes, self.seconds)

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
            self._check(headers, scope.get("scheme", "http"))
            await self.app({**scope, _BODY: body}, body.receive, send_with_headers)
        except Problem as problem:
            if begun:
                raise
            await problem.response()(scope, receive, send_with_headers)
        except TimeoutError:
            return  # the client does not read: the server closes the connection

    def _check(self, headers: Headers, own: str) -> None:
        """`own`: the scheme of the request. Before a host with a name a proxy may speak https."""
        asked = headers.get("host", "")
        if (name := _name_of(asked)) not in self.hosts:
            raise Problem(421, "another host was asked for", "Use the address of this service.")
        scheme, _, place = headers.get("origin", f"{own}://{asked}").partition("://")
        foreign = _place_of(place) != _place_of(asked) or (name in LOOPBACK and scheme != own)
        if foreign or headers.get("sec-fetch-site") == "cross-site":
            raise Problem(403, "a page of another origin asked", "Ask from a server instead.")


class Body:
    """The body of a request as it arrives. `seconds`: between two pieces of it, and for it all."""

    def __init__(
        self, receive: Receive, headers: Headers, most_bytes: int, seconds: tuple[float, float]
    ) -> None:
        self._receive, self._most = receive, most_bytes
        self._announced = headers.get("content-length", "0")
        self._for_piece, for_all = seconds
        self._end = time.monotonic() + for_all
        self._come, self._whole = 0, False
        self.in_pieces = False

    async def receive(self) -> Message:
        """The next message; a Problem where the body is too long or too slow."""
        if self._whole:  # whoever asks now waits for the client to leave
            return await self._receive()
        left = self._for_piece
        if not self.in_pieces:
            if not self._announced.isdigit() or int(self._announced) > self._most:
                raise self._too_long()
            left = min(left, max(0.0, self._end - time.monotonic()))
        try:
            async with asyncio.timeout(left):
                message = await self._receive()
        except TimeoutError:
            raise Problem(408, "the body takes too long", "Send it at once.") from None
        self._whole = not message.get("more_body", False)
        self._come += len(message.get("body", b""))
        if not self.in_pieces and self._come > self._most:
            raise self._too_long()
        return message

    def _too_long(self) -> Problem:
        detail = f"At most {self._most // 1000} kB; send many rows as {STREAM}."
        return Problem(413, "the body is too long", detail)


def in_pieces(scope: Scope) -> None:
    """Say that the body of a request is read piece by piece, each of which is limited."""
    scope[_BODY].in_pieces = True


def _name_of(host: str) -> str:
    """A host without its port, in small letters; "" where that is no host."""
    found = _HOST.fullmatch(host.strip().lower())
    return found[1] if found else ""


def _place_of(host: str) -> str:
    """Host and port in small letters, without the usual ports."""
    return re.sub(":(80|443)$", "", host.strip().lower())


def own_hosts(host: str, named: Collection[str]) -> set[str]:
    """The names that a service on this address has, with those that its owner gave it."""
    own = {_name_of(each) for each in named}
    if host in {"0.0.0.0", "::"}:
        return own | LOOPBACK
    bare = f"[{host}]" if ":" in host else host.lower()
    return own | (LOOPBACK if bare in LOOPBACK else {bare})


def is_local(host: Any) -> bool:
    """Whether an address is of this machine alone."""
    return str(host) in {"127.0.0.1", "localhost", "::1"}
