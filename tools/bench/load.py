"""`python tools/bench load`: polite clients of `counterveil serve` beside some that are not.

A veil of the embedded Adult rows is served by its private model; every client has a key and an
address of its own. Quiet and loud stretches take turns in one run.

| client | what it does |
|---|---|
| polite | asks about one row, waits for the answer, and pauses `pause` seconds on average |
| greedy | asks for many rows at a time on several connections, without a pause |
| slow | opens connections and sends a byte of a question a second |
| cancelling | asks for many ways for many rows, and leaves after a moment, again and again |

In quiet stretches there are the polite alone, in loud ones all of them. `median_ms` and `p99_ms`
are those of polite clients, `ratio` that of a loud median to the quiet one. A tenth of the people
who ask have no answer. `memory_mib`: the most that the server held. `errors`: answers to polite
clients other than 200.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.serve import EPSILON, LOOKED_AT, Load, answer_from, head, memory, seen_of, served
from counterveil import Explainer
from counterveil.service.access import AccessKeys
from counterveil_lab.product import embedded_adult
from counterveil_lab.results import Results

POLITE = 64
PAUSES = (1.0, 0.0)  # seconds on average
STRETCH, QUICK_STRETCH = 50.0, 3.0  # seconds
ROUNDS = 3
GREEDY, GREEDY_ROWS = 8, 500
SLOW = 200
CANCELLING, CANCELLED_ROWS, CANCELLED_WAYS = 4, 100, 10
UNANSWERED = 10  # one in so many
NO_LIMIT = 10**9
OTHERS = ("greedy", "slow", "cancelling")
OWN = 10  # the first address of a polite client


@dataclass
class Crowd:
    """Clients of one server; `keys`: of each by its name; `end`: when they stop."""

    port: int
    keys: dict[str, str]
    rows: list[Any]
    pause: float
    end: float
    seen: Load = field(default_factory=Load)

    async def polite(self, number: int) -> None:
        dice = random.Random(number)
        while time.perf_counter() < self.end:
            await asyncio.sleep(self.pause * dice.expovariate(1.0))
            asked = time.perf_counter()
            reader, writer = await self._connected(OWN + number)
            writer.write(self._question(f"polite {number}", [dice.choice(self.rows)]))
            status, _ = await answer_from(reader)
            if status == 200:
                self.seen.milliseconds.append(1000 * (time.perf_counter() - asked))
            else:
                self.seen.errors += 1
            writer.close()

    async def greedy(self) -> None:
        question = self._question("greedy", (self.rows * GREEDY_ROWS)[:GREEDY_ROWS])
        while time.perf_counter() < self.end:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await self._connected(OTHERS.index("greedy"))
                writer.write(question)
                status, _ = await answer_from(reader)
                writer.close()
                if status != 200:
                    await asyncio.sleep(0.2)

    async def slow(self) -> None:
        question = self._question("slow", self.rows[:1])
        while time.perf_counter() < self.end:
            with suppress(OSError):
                _, writer = await self._connected(OTHERS.index("slow"))
                for place in range(len(question)):
                    writer.write(question[place : place + 1])
                    await writer.drain()
                    await asyncio.sleep(1)
                    if time.perf_counter() > self.end or writer.is_closing():
                        break
                writer.close()
            await asyncio.sleep(1)

    async def cancelling(self) -> None:
        question = self._question("cancelling", self.rows[:CANCELLED_ROWS], k=CANCELLED_WAYS)
        while time.perf_counter() < self.end:
            with suppress(OSError):
                _, writer = await self._connected(OTHERS.index("cancelling"))
                writer.write(question)
                await writer.drain()
                await asyncio.sleep(0.2)
                writer.close()

    async def together(self, *, loud: bool) -> None:
        """All of them until the end."""
        clients: list[Coroutine[Any, Any, None]] = [self.polite(n) for n in range(POLITE)]
        if loud:
            clients += [self.greedy() for _ in range(GREEDY)]
            clients += [self.slow() for _ in range(SLOW)]
            clients += [self.cancelling() for _ in range(CANCELLING)]
        await asyncio.gather(*clients)

    async def _connected(self, who: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server from an address of this client's own."""
        own = (f"127.0.1.{who + 1}", 0)
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=own, limit=1 << 26)

    def _question(self, name: str, rows: list[Any], **more: Any) -> bytes:
        body = json.dumps({"rows": rows, **more}).encode()
        key = self.keys[name.partition(" ")[0] if name in OTHERS else name]
        return head("application/json", len(body), key) + body


def bench(folder: Path, command: str, *, quick: bool, say: Callable[[str], None]) -> None:
    """Measure every pause, quiet and loud."""
    results = Results(folder, "bench-load", command)
    schema, people, released = embedded_adult(EPSILON)
    table = people.test[list(schema.columns)].head(LOOKED_AT)
    with tempfile.TemporaryDirectory() as place:
        path, keys = Path(place) / "adult.veil", AccessKeys(Path(place) / "keys.db", create=True)
        released.save(path)
        names = [*OTHERS, *(f"polite {number}" for number in range(POLITE))]
        made = {name: keys.new(name, NO_LIMIT, NO_LIMIT) for name in names}
        found = Explainer(path).explain(table, progress=False).valid
        every = json.loads(table.to_json(orient="records"))
        with_answer = [row for row, yes in zip(every, found, strict=True) if yes]
        without = [row for row, yes in zip(every, found, strict=True) if not yes]
        rows = with_answer[: (UNANSWERED - 1) * len(without)] + without
        with served(path, "--keys", str(keys.path)) as (port, process):
            for pause in PAUSES:
                parts = {"quiet": Load(), "loud": Load()}
                for _ in range(ROUNDS):
                    for name, part in parts.items():
                        seconds = QUICK_STRETCH if quick else STRETCH
                        end = time.perf_counter() + seconds
                        crowd = Crowd(port, made, rows, pause, end, part)
                        asyncio.run(_watched(crowd, process, loud=name == "loud"))
                        part.seconds += seconds
                quiet = seen_of(parts["quiet"])["median_ms"]
                for name, part in parts.items():
                    numbers = seen_of(part)
                    numbers["ratio"] = numbers["median_ms"] / quiet
                    numbers["memory_mib"] = max(part.memory)
                    row = {"part": name, "polite": POLITE, "pause": pause}
                    share = {"unanswered": len(without) / len(rows)}
                    results.add({**row, **share, **numbers})
                    say(f"{name}, pause {pause:g} s: {numbers}")


async def _watched(crowd: Crowd, process: int, *, loud: bool) -> None:
    """The crowd, and the server's memory once a second."""
    running = asyncio.create_task(crowd.together(loud=loud))
    while not running.done():
        crowd.seen.memory.append(memory(process))
        await asyncio.wait([running], timeout=1)
    await running
