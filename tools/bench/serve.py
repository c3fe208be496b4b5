"""`python tools/bench serve`: `counterveil serve` under load, with batching and without.

A veil of the embedded Adult rows is served by its private model in a process of its own.

| part | what |
|---|---|
| `batched` | clients that ask one row each, again and again, all at the same time |
| `unbatched` | the same with `--at-once 1`: every request is searched by itself |
| `some without` | as `batched`, but some of the people who ask have no answer |
| `stream` | many rows in one stream |
| `earlier`, … | the same of an earlier version of the code with its own veil (`--against`) |

But for `some without`, all people who ask have an answer. `unanswered` is the share of people who
have none. Clients are tasks of this process, on connections that stay open; `requests_per_second`,
and the median and the 99th percentile of the milliseconds of a request, are seen from there. The
parts but the stream take turns, in rounds, in one run. `memory_mib`: of the server, after the first
round and at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from counterveil.demo.adult import adult_schema, adult_split
from counterveil_lab.results import Results

EPSILON = 0.75
CLIENTS, QUICK_CLIENTS = 64, 8
SECONDS, QUICK_SECONDS = 60.0, 2.0  # of each part, in rounds
ROUNDS = 3
STREAMED, QUICK_STREAMED, EARLIER_STREAMED = 20_000, 500, 1_000
ROWS = 200  # different people who ask
LOOKED_AT = 400  # people among whom they are
START = "from counterveil.cli import main; main()"
# What any version of the code makes its veil by, and who of the people has an answer then.
RELEASE = """
import json, sys
from counterveil import Explainer
from counterveil.curator import Curator
from counterveil.demo.adult import adult_schema, adult_split
path, epsilon, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
schema, people = adult_schema(), adult_split()
Curator(schema).release(people.train, epsilon, progress=False).save(path)
table = people.test[list(schema.columns)].head(count)
print(json.dumps(Explainer(path).explain(table, progress=False).valid.tolist()))
"""


@dataclass
class Load:
    """What clients saw of one server."""

    milliseconds: list[float] = field(default_factory=list)
    errors: int = 0
    seconds: float = 0.0
    memory: list[float] = field(default_factory=list)  # MiB, after each round


def bench(
    folder: Path,
    command: str,
    *,
    quick: bool,
    say: Callable[[str], None],
    against: Path | None = None,
) -> None:
    """Measure every part; `against`: the folder `src` of an earlier version of the code."""
    results = Results(folder, "bench-serve", command)
    clients = QUICK_CLIENTS if quick else CLIENTS
    with tempfile.TemporaryDirectory() as place:
        path, old = Path(place) / "adult.veil", Path(place) / "earlier.veil"
        rows, some, unanswered = people_of(path)
        with ExitStack() as servers:
            batched = servers.enter_context(served(path))
            unbatched = servers.enter_context(served(path, "--at-once", "1"))
            parts = {
                "batched": (*batched, rows, 0.0),
                "unbatched": (*unbatched, rows, 0.0),
                "some without": (*batched, some, unanswered),
            }
            streams = {"stream": (batched, QUICK_STREAMED if quick else STREAMED)}
            if against is not None:
                theirs, some, unanswered = people_of(old, against)
                earlier = servers.enter_context(served(old, source=against))
                parts["earlier"] = (*earlier, theirs, 0.0)
                parts["earlier, some without"] = (*earlier, some, unanswered)
                fewer = QUICK_STREAMED if quick else EARLIER_STREAMED
                streams["earlier, stream"] = (earlier, fewer)
            loads = {name: Load() for name in parts}
            seconds = (QUICK_SECONDS if quick else SECONDS) / ROUNDS
            for _ in range(ROUNDS):
                for name, (port, process, asked, _) in parts.items():
                    asyncio.run(_load(loads[name], port, asked, clients, seconds))
                    loads[name].memory.append(memory(process))
            for name, (*_, share) in parts.items():
                load = loads[name]
                numbers = {**seen_of(load), "memory_first": load.memory[0]}
                numbers["memory_mib"] = load.memory[-1]
                results.add({"part": name, "clients": clients, "unanswered": share, **numbers})
                say(f"{name}: {numbers}")
            for name, ((port, process), count) in streams.items():
                before = memory(process)
                seconds, answered = asyncio.run(_stream(port, rows, count))
                row = {"rows": answered, "rows_per_second": answered / seconds}
                row |= {"memory_first": before, "memory_mib": memory(process)}
                results.add({"part": name, **row})
                say(f"{name}: {row}")


def seen_of(load: Load) -> dict[str, float | int]:
    """What clients saw, in numbers."""
    times = np.array(load.milliseconds)
    return {
        "requests": len(times),
        "errors": load.errors,
        "requests_per_second": len(times) / load.seconds,
        "median_ms": float(np.median(times)),
        "p99_ms": float(np.quantile(times, 0.99)),
    }


def people_of(path: Path, source: Path | None = None) -> tuple[list[Any], list[Any], float]:
    """People who have an answer by a new veil, people of whom some have none, and their share.

    `source`: where the code is that makes the veil, at `path`, if not here.
    """
    command = [sys.executable, "-c", RELEASE, str(path), str(EPSILON), str(LOOKED_AT)]
    made = subprocess.run(command, env=environment_of(source), stdout=subprocess.PIPE, check=True)
    found = json.loads(made.stdout.splitlines()[-1])
    table = adult_split().test[list(adult_schema().columns)].head(LOOKED_AT)
    every = json.loads(table.to_json(orient="records"))
    rows = [row for row, answered in zip(every, found, strict=True) if answered]
    return rows[:ROWS], every[:ROWS], 1 - float(np.mean(found[:ROWS]))


def environment_of(source: Path | None) -> dict[str, str]:
    """Of a process that runs the code at `source`, if not that which is here."""
    chosen = {} if source is None else {"PYTHONPATH": str(source.resolve())}
    return {**os.environ, "OMP_NUM_THREADS": "1", **chosen}


@contextmanager
def served(path: Path, *options: str, source: Path | None = None) -> Iterator[tuple[int, int]]:
    """The port and the process of a server; `source`: where its code is, if not here."""
    call = [sys.executable, "-c", START, "serve", "--veil", str(path), "--port", "0", *options]
    environment = environment_of(source)
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"http://[\d.]+:(\d+)/", line):
                yield int(found[1]), process.pid
                break
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


async def _load(load: Load, port: int, rows: list[object], clients: int, seconds: float) -> None:
    """So many clients for so long."""
    begun = time.perf_counter()
    end = begun + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        turn = number
        while time.perf_counter() < end:
            body = json.dumps({"rows": [rows[turn % len(rows)]]}).encode()
            turn += clients
            asked = time.perf_counter()
            writer.write(head("application/json", len(body)) + body)
            status, _ = await answer_from(reader)
            if status == 200:
                load.milliseconds.append(1000 * (time.perf_counter() - asked))
            else:
                load.errors += 1
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    load.seconds += time.perf_counter() - begun


async def _stream(port: int, rows: list[object], count: int) -> tuple[float, int]:
    """Seconds, and the rows that were answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    begun = time.perf_counter()
    lines = [json.dumps({}), *(json.dumps(rows[number % len(rows)]) for number in range(count))]
    body = "\n".join(lines).encode()

    async def send() -> None:
        writer.write(head("application/x-ndjson", len(body)))
        for start in range(0, len(body), 1 << 16):
            writer.write(body[start : start + (1 << 16)])
            await writer.drain()

    sending = asyncio.create_task(send())
    await reader.readuntil(b"\r\n\r\n")
    answered = 0
    while size := int(await reader.readline(), 16):
        answered += (await reader.readexactly(size + 2)).count(b"\n") - 1
    await sending
    writer.close()
    return time.perf_counter() - begun, answered


def head(kind: str, length: int, key: str = "") -> bytes:
    """The head of a question of so many bytes; `key`: of a client."""
    named = f"Authorization: Bearer {key}\r\n" if key else ""
    return (
        f"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
        f"{named}Content-Length: {length}\r\n\r\n"
    ).encode()


async def answer_from(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    body = await reader.readexactly(int(length[1])) if length else b""
    return int(head.split()[1]), body


def memory(process: int) -> float:
    """MiB that a process holds in memory."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
