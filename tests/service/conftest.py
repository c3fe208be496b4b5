"""A service in a process of its own, on a free port of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Served:
    """A running `counterveil serve`; `address`: where."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder)}
        command = [sys.executable, "-m", "counterveil.cli", "serve", "--port", "0", *arguments]
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(command, env=environment, cwd=folder, **how)
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if found := re.search(r"http://[\d.]+:(\d+)/", line):
                self.port, self.address = int(found[1]), found[0].rstrip("/")
                return
        raise AssertionError(self.said)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@pytest.fixture(scope="session")
def people(rows: Any, schema: Any) -> list[dict[str, Any]]:
    """Rows as a client sends them."""
    frame = rows[list(schema.columns)].head(40)
    found: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return found


@pytest.fixture
def served(veil: Any, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """`served(*arguments)` starts a service of the veil."""
    veil.save(tmp_path / "loans.veil")
    running: list[Served] = []

    def start(*arguments: str) -> Served:
        running.append(Served(["--veil", "loans.veil", *arguments], tmp_path))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            each.stop()


@pytest.fixture(scope="module")
def served_once(veil: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that several tests share."""
    folder = tmp_path_factory.mktemp("served")
    veil.save(folder / "loans.veil")
    service = Served(["--veil", "loans.veil"], folder)
    yield service
    service.stop()
