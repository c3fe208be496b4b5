"""Many small questions become one search: whatever waits while a search runs is the next one.

One thread searches. Questions that can be answered together (the same number of ways, the same
preference) go into one call, each row with its own target and rules; a long question waits in
pieces, so that short ones pass between them. The queue is bounded: who comes when it is full is
told to come again. A search that takes too long is given up, for a thread cannot be stopped: its
callers are told, and another thread goes on. After a few of those the service says that it fails.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from counterveil.errors import InputError
from counterveil.search import Explainer, Rules
from counterveil.service.answers import records
from counterveil.service.questions import Question, Row
from counterveil.service.responses import Problem

log = logging.getLogger("counterveil.service")
AT_ONCE = 256  # rows of one search
MOST_WAITING = 4096  # rows in the queue
MOST_GIVEN_UP = 3  # searches that never ended
SECONDS = 30.0  # for a search
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one caller that are searched in one call."""

    rows: Sequence[Row]
    question: Question
    rules: Rules | None
    done: asyncio.Future[list[dict[str, Any]]]

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for pieces that can be searched together."""
        asked = self.question
        form = asked.regions, asked.letter
        return asked.k, asked.prefer, *form, asked.target is None, self.rules is None


@dataclass
class Batcher:
    """The queue before the search. Used from one event loop; `close` ends it.

    `at_once`: rows of one search; 1 searches every piece by itself. `seconds`: for a search.
    `looked`: is told the number of rows of every search.
    """

    explainer: Explainer
    at_once: int = AT_ONCE
    most_waiting: int = MOST_WAITING
    seconds: float = SECONDS
    looked: Callable[[int], None] = lambda _: None
    given_up: int = 0

    def __post_init__(self) -> None:
        self._waiting: list[Piece] = []
        self._closed = False
        self._thread = _one_thread()
        self._filled = asyncio.Event()
        self._worker = asyncio.create_task(self._work())

    @property
    def rows_waiting(self) -> int:
        return sum(len(piece.rows) for piece in self._waiting)

    @property
    def fails(self) -> bool:
        """Whether so many searches never ended that no more are begun."""
        return self.given_up > MOST_GIVEN_UP

    async def explain(self, rows: Sequence[Row], question: Question) -> list[dict[str, Any]]:
        """A record for each row. A Problem, or an InputError of the search, where there is none."""
        rules = question.all_rules
        loop, size = asyncio.get_running_loop(), self.at_once
        pieces = [
            Piece(rows[start : start + size], question, rules, loop.create_future())
            for start in range(0, len(rows), size)
        ]
        self._take(pieces)
        try:
            found = [await piece.done for piece in pieces]
        finally:
            for piece in pieces:
                piece.done.cancel()
        return [record for part in found for record in part]

    async def decide(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The probability of each class, for each row."""
        return await self._in_thread(lambda: _decisions(self.explainer, rows))

    def _take(self, pieces: list[Piece]) -> None:
        if self._closed or self.fails:
            raise _not_answering()
        count, before = sum(len(piece.rows) for piece in pieces), self.rows_waiting
        if before and before + count > self.most_waiting:
            raise Problem(503, "too many questions are waiting", "Try again.", retry_after=1)
        self._waiting += pieces
        self._filled.set()

    async def _work(self) -> None:
        while True:
            await self._filled.wait()
            pieces = self._next()
            if not self._waiting:
                self._filled.clear()
            if pieces:
                await self._search(pieces)

    def _next(self) -> list[Piece]:
        """The pieces of the next search: the first in the queue, and those that go with it."""
        chosen: list[Piece] = []
        left: list[Piece] = []
        room = self.at_once
        for piece in self._waiting:
            if piece.done.done():  # nobody waits for it any more
                continue
            if not chosen or (len(piece.rows) <= room and piece.kind == chosen[0].kind):
                chosen.append(piece)
                room -= len(piece.rows)
            else:
                left.append(piece)
        self._waiting = left
        return chosen

    async def _search(self, pieces: list[Piece]) -> None:
        """Search for all at once; where somebody's question is wrong, for each by itself."""
        self.looked(sum(len(piece.rows) for piece in pieces))
        try:
            found = await self._in_thread(lambda: _explained(self.explainer, pieces))
        except InputError as error:
            if len(pieces) == 1:
                _fail(pieces, error)
            else:
                for piece in pieces:
                    await self._search([piece])
        except Exception as error:
            _fail(pieces, error)
        else:
            records_left = iter(found)
            for piece in pieces:
                mine = list(islice(records_left, len(piece.rows)))
                if not piece.done.done():
                    piece.done.set_result(mine)

    async def _in_thread(self, work: Callable[[], Found]) -> Found:
        """`work` done in the thread; a Problem if that takes too long."""
        if self.fails:
            raise _not_answering()
        thread = self._thread
        running = asyncio.get_running_loop().run_in_executor(thread, work)
        try:
            return await asyncio.wait_for(asyncio.shield(running), self.seconds)
        except TimeoutError:
            running.add_done_callback(lambda late: late.cancelled() or late.exception())
            if self._thread is thread:
                self.given_up += 1
                self._thread = _one_thread()
                thread.shutdown(wait=False, cancel_futures=True)
            log.error("a search took more than %g s and was given up", self.seconds)
            raise Problem(
                503, "the answer takes too long", "The model or the search hangs.", retry_after=30
            ) from None

    async def close(self) -> None:
        """Answer what waits, and end."""
        self._closed = True
        while self._waiting and not self.fails:
            await asyncio.sleep(0.01)
        self._worker.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="search")


def _not_answering() -> Problem:
    return Problem(503, "the service is not answering", "Try again later.", retry_after=30)


def _fail(pieces: Sequence[Piece], error: Exception) -> None:
    for piece in pieces:
        if not piece.done.done():
            piece.done.set_exception(error)


def _explained(explainer: Explainer, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """The records of all rows of all pieces, in order."""
    first = pieces[0].question
    rows = [row for piece in pieces for row in piece.rows]
    targets: Any = [piece.question.target for piece in pieces for _ in piece.rows]
    rules: Any = [piece.rules for piece in pieces for _ in piece.rows]
    result = explainer.explain(
        rows,
        None if first.target is None else targets,
        k=first.k,
        rules=None if pieces[0].rules is None else rules,
        prefer=first.prefer,
        progress=False,
    )
    return records(result, regions=first.regions, letter=first.letter)


def _decisions(explainer: Explainer, rows: Sequence[Row]) -> list[dict[str, Any]]:
    shares = explainer.decide(list(rows))
    classes = explainer.veil.schema.label.classes
    return [
        {"decision": classes[int(row.argmax())], "probabilities": [round(float(p), 6) for p in row]}
        for row in shares
    ]
