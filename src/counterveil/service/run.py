"""The server process: uvicorn with limits, and a clean end."""

import asyncio
import logging
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from counterveil.errors import RequestError
from counterveil.search import Explainer
from counterveil.service.app import Settings, create_app

MOST_CONNECTIONS = 512
SECONDS_FOR_HEAD = 10.0  # from the start of a request until its headers are whole
SECONDS_TO_END = 20  # for answers that are under way when the service is stopped


class PatientOnlySoLong(H11Protocol):
    """HTTP/1.1 that closes connections on which no whole request head arrives in time."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._clock = self.loop.call_later(SECONDS_FOR_HEAD, self._give_up)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waits = self.cycle is None or self.cycle.response_complete
        if not waits and self._clock is not None:
            self._clock.cancel()
            self._clock = None
        elif waits and self._clock is None:
            self._clock = self.loop.call_later(SECONDS_FOR_HEAD, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        self._clock = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def _is_a_fault(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's is no client that has left or sends nonsense."""
    said = record.getMessage()
    return not said.startswith(("ASGI callable returned without", "Invalid HTTP request"))


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; a RequestError where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(2048)  # who comes before the first answer waits
    except OSError as error:
        found.close()
        why = error.strerror or "no such address"
        raise RequestError(f"cannot listen on {host}, port {port}: {why}; give another") from None
    return found


def serve(explainer: Explainer, settings: Settings, listening: socket.socket) -> None:
    """The service, until the process is told to stop; what is under way is answered first."""
    logging.getLogger("counterveil.service").setLevel(logging.INFO)
    serve_app(create_app(explainer, settings), listening)


def serve_app(app: ASGIApp, listening: socket.socket) -> None:
    """Any application, with the limits of this module, until the process is told to stop."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_is_a_fault)
    config = uvicorn.Config(
        app,
        http=PatientOnlySoLong,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=SECONDS_TO_END,
        h11_max_incomplete_event_size=32_768,
    )
    uvicorn.Server(config).run(sockets=[listening])
