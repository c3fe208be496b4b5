"""Word to systemd that the service is ready and that nothing hangs (sd_notify).

Where word fails to come, because the event loop or several searches hang, systemd starts the
service again: see deploy/counterveil.service.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress


def tell_systemd(state: str) -> None:
    """Tell whoever started this process how it is; nothing where nobody listens."""
    place = os.environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
    if place:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, suppress(OSError):
            line.sendto(state.encode(), place)


async def keep_telling(fails: Callable[[], bool]) -> None:
    """Say that all is ready; then, twice as often as the watchdog looks, that nothing `fails`."""
    tell_systemd("READY=1")
    seconds = int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6
    while seconds:
        if not fails():
            tell_systemd("WATCHDOG=1")
        await asyncio.sleep(seconds)
