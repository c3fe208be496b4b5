"""Many small questions become one search, and nobody waits for more than a fair share of others.

A question waits in pieces of about equal cost, one at a time, so that short ones pass between the
pieces of long ones. Whose turn is next is a matter of what each client has cost so far (fair
queueing by a virtual time: what each of the waiting clients has got). Pieces that can be answered
together (the same number of ways, the same preference) go into one search, each row with its own
target and rules; while others wait, a client has a share of it.

What goes wrong costs only its asker. A search of several pieces that fails, or takes too long, is
done again in halves. A long search is put aside, and the others go on beside it: whenever it asks
the model it first rests, the longer the more searches have worked for less. A
search for which nobody waits any more, or that is over its time, stops when it next asks the model.
A model that hangs even then keeps its thread, and the service says that it fails while several do.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from counterveil.search import Explainer, Rules
from counterveil.search.asking import Stopped, until
from counterveil.service.answers import records
from counterveil.service.questions import Question, Row
from counterveil.service.responses import STREAM, Problem

log = logging.getLogger("counterveil.service")
AT_ONCE = 256  # cost of one search: a row is 1 for each way
MOST_WAITING = 16_384  # cost of all questions that wait
DECIDED = 64  # rows that are decided at the cost of one that is explained
SECONDS, PATIENCE = 30.0, 0.5  # for a search, and until it is put aside
RESTS, LONGEST_REST = 4, 1.0  # times as long as it worked, for each search before it; seconds
LONG = 3  # doublings of the patience, after which older searches go first
MOST_ASIDE, MOST_HANGING = 11, 4  # searches
FEW = 12  # columns that the schema does not have


class QueueFull(Problem):
    """Many wait, and most of them are this client's."""


@dataclass(eq=False)
class Piece:
    """Rows of one client that are searched in one call; without a question they are decided.

    `turn`: the virtual time at which it is done. `together`: with how many it may be searched.
    """

    client: str
    rows: Sequence[Row]
    question: Question | None
    rules: Rules | None
    cost: float
    done: asyncio.Future[list[dict[str, Any]]]
    turn: float = 0.0
    together: int = AT_ONCE

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for pieces that can be searched together."""
        asked = self.question
        if asked is None:
            return ()
        form = asked.regions, asked.letter
        return asked.k, asked.prefer, *form, asked.target is None, self.rules is None


@dataclass
class Batcher:
    """The queue before the search. Used from one event loop; `close` ends it.

    `at_once`: the cost of one search; 1 searches every row by itself. `seconds`: for a search.
    `looked`: is told the number of rows of every search.
    """

    explainer: Explainer
    at_once: int = AT_ONCE
    most_waiting: int = MOST_WAITING
    seconds: float = SECONDS
    patience: float = PATIENCE
    looked: Callable[[int], None] = lambda _: None
    _waiting: list[Piece] = field(default_factory=list)
    _open: dict[str, float] = field(default_factory=dict)  # cost of the questions of each client
    _aside: dict[asyncio.Task[None], str] = field(default_factory=dict)  # searches, and for whom
    _since: dict[Any, float] = field(default_factory=dict)  # when a search began, and its rests
    _hanging: set[asyncio.Future[Any]] = field(default_factory=set)
    _now: float = 0.0  # virtual time
    _turns: dict[str, float] = field(default_factory=dict)  # of the last piece of each client
    _closed: bool = False

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST_ASIDE + 1 + MOST_HANGING, "search")
        self._changed = asyncio.Event()
        self._worker = asyncio.create_task(self._work())

    @property
    def rows_waiting(self) -> int:
        """How many rows are in the queue."""
        return sum(len(piece.rows) for piece in self._waiting)

    @property
    def fails(self) -> bool:
        """Whether so many searches hang that no more are begun, until one of them ends."""
        return len(self._hanging) >= MOST_HANGING

    async def explain(
        self, client: str, rows: Sequence[Row], question: Question
    ) -> list[dict[str, Any]]:
        """A record for each row. A Problem, or an InputError of the search, where there is none."""
        return await self._answers(client, rows, question.cost, question)

    async def decide(self, client: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The probability of each class, for each row."""
        return await self._answers(client, rows, 1 / DECIDED, None)

    async def _answers(
        self, client: str, rows: Sequence[Row], cost: float, question: Question | None
    ) -> list[dict[str, Any]]:
        """The same for rows that cost so much each: piece after piece."""
        rules = None if question is None else question.all_rules
        size, found = max(1, int(self.at_once / cost)), list[dict[str, Any]]()
        end = time.monotonic() + self.seconds
        with self._place(client, len(rows) * cost):
            for start in range(0, len(rows), size):
                if time.monotonic() > end:
                    said = f"Ask about fewer rows, or send them as {STREAM}."
                    raise Problem(503, "the answer takes too long", said, retry_after=30)
                some = rows[start : start + size]
                done = asyncio.get_running_loop().create_future()
                piece = Piece(client, some, question, rules, len(some) * cost, done)
                self._put(piece)
                found += await done
        return found

    @contextmanager
    def _place(self, client: str, cost: float) -> Iterator[None]:
        """A place in the queue; who has more than a fair share of a full one is refused."""
        if self._closed or self.fails:
            raise _not_answering()
        mine, every = self._open.get(client, 0.0), sum(self._open.values())
        share = self.most_waiting / max(1, len(self._open))
        if mine and every + cost > self.most_waiting and mine + cost > share:
            raise QueueFull(429, "too many questions are waiting", "Try again.", retry_after=1)
        self._open[client] = mine + cost
        try:
            yield
        finally:
            left = self._open.pop(client) - cost
            if left > 1e-6:
                self._open[client] = left

    def _put(self, piece: Piece) -> None:
        if piece.turn == 0:
            start = max(self._now, self._turns.get(piece.client, 0.0))
            piece.turn = self._turns[piece.client] = start + piece.cost
        self._waiting.append(piece)
        self._changed.set()

    async def _work(self) -> None:
        while True:
            pieces = self._next()
            if not pieces or len(self._aside) > MOST_ASIDE:
                self._changed.clear()
                await self._changed.wait()
                continue
            clients = {piece.client for piece in (*self._waiting, *pieces)}
            served = sum(piece.cost for piece in pieces) / len(clients)
            self._now = max(self._now, pieces[0].turn - pieces[0].cost) + served
            self._turns = {name: turn for name, turn in self._turns.items() if turn > self._now}
            self._waiting = [piece for piece in self._waiting if piece not in pieces]
            search = asyncio.create_task(self._search(pieces))
            self._aside[search] = pieces[0].client if len(pieces) == 1 else ""
            search.add_done_callback(self._is_done)
            await asyncio.wait({search}, timeout=self.patience)

    def _is_done(self, search: asyncio.Task[None]) -> None:
        del self._aside[search]
        self._changed.set()

    def _next(self) -> list[Piece]:
        """The pieces of the next search: the one whose turn it is, and those that go with it.

        Who has a long search already waits for its end.
        """
        self._waiting = [piece for piece in self._waiting if not piece.done.done()]
        busy, chosen = set(self._aside.values()), list[Piece]()
        free = [piece for piece in self._waiting if piece.client not in busy]
        share = self.at_once / max(1, len({piece.client for piece in free}))
        taken: dict[str, float] = defaultdict(float)
        for piece in sorted(free, key=lambda piece: piece.turn):
            fits = taken[piece.client] + piece.cost <= share
            fits = fits and sum(taken.values()) + piece.cost <= self.at_once
            fits = fits and len(chosen) < min(each.together for each in (*chosen, piece))
            if not chosen or (fits and piece.kind == chosen[0].kind):
                chosen.append(piece)
                taken[piece.client] += piece.cost
        return chosen

    async def _search(self, pieces: list[Piece]) -> None:
        """Search for all at once; what fails or takes too long is to be done again in halves."""
        self.looked(sum(len(piece.rows) for piece in pieces))
        several = len(pieces) > 1
        seconds = min(self.seconds, 16 * self.patience) if several else self.seconds
        search, begun = object(), time.monotonic()
        self._since[search], end, asked = begun, begun + seconds, begun

        def stopped() -> bool:
            nonlocal asked
            now = time.monotonic()
            rest = min(LONGEST_REST, RESTS * self._before(search) * (now - asked), end - now)
            if rest > 0:
                time.sleep(rest)
                self._since[search] += rest
            asked = time.monotonic()
            return asked > end or all(piece.done.done() for piece in pieces)

        def work() -> list[dict[str, Any]]:
            try:
                with until(stopped):
                    return _answered(self.explainer, pieces)
            finally:
                del self._since[search]

        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            found = iter(await asyncio.wait_for(asyncio.shield(running), seconds + self.patience))
        except Exception as error:
            if not running.done():
                self._hanging.add(running)
                running.add_done_callback(self._goes_on)
            for piece in pieces:
                piece.together = len(pieces) // 2
                if several and not self.fails:
                    self._put(piece)
                elif not piece.done.done():
                    piece.done.set_exception(self._told(error))
            if self.fails:
                for piece in self._waiting:
                    if not piece.done.done():
                        piece.done.set_exception(_not_answering())
            return
        for piece in pieces:
            mine = list(islice(found, len(piece.rows)))
            if not piece.done.done():
                piece.done.set_result(mine)

    def _before(self, search: object) -> int:
        """How many searches go before one: of those that have worked for about as long, older ones.

        Those that have worked for less go before it, while that is not long.
        """
        now, since = time.monotonic(), dict(self._since)
        worked = {each: int((now - begun) / self.patience) for each, begun in since.items()}
        return sorted(since, key=lambda each: min(LONG, worked[each].bit_length())).index(search)

    def _told(self, error: Exception) -> Exception:
        if not isinstance(error, TimeoutError | Stopped):
            return error
        log.error("a search took more than %g s and was given up", self.seconds)
        said = "The model or the search is too slow for this question."
        return Problem(503, "the answer takes too long", said, retry_after=30)

    def _goes_on(self, running: asyncio.Future[Any]) -> None:
        """A thread that hung is free again."""
        self._hanging.discard(running)
        if not running.cancelled():
            running.exception()  # nobody waits for it

    async def close(self) -> None:
        """Answer what waits, and end."""
        self._closed = True
        while (self._waiting or self._aside) and not self.fails:
            await asyncio.sleep(0.01)
        self._worker.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _not_answering() -> Problem:
    return Problem(503, "the service is not answering", "Try again later.", retry_after=30)


def _answered(explainer: Explainer, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """The records of all rows of all pieces, in order."""
    rows, first = (
        _known(explainer, [row for piece in pieces for row in piece.rows]),
        pieces[0].question,
    )
    if first is None:
        return _decisions(explainer, rows)
    targets: Any = [piece.question.target for piece in pieces if piece.question for _ in piece.rows]
    rules: Any = [piece.rules for piece in pieces for _ in piece.rows]
    result = explainer.explain(
        rows,
        None if first.target is None else targets,
        k=first.k,
        rules=None if pieces[0].rules is None else rules,
        copied=(),
        prefer=first.prefer,
        progress=False,
    )
    return records(result, regions=first.regions, letter=first.letter)


def _known(explainer: Explainer, rows: Sequence[Row]) -> list[Row]:
    """The rows without columns that the schema lacks, but for a few that a message may name."""
    schema = explainer.veil.schema
    known = {*schema.columns}
    strange = (name for row in rows for name in row if schema.column_called(name) not in known)
    few = {*islice(strange, FEW)}
    return [
        {name: row[name] for name in row if name in few or schema.column_called(name) in known}
        for row in rows
    ]


def _decisions(explainer: Explainer, rows: list[Row]) -> list[dict[str, Any]]:
    shares = explainer.decide(rows)
    classes = explainer.veil.schema.label.classes
    return [
        {"decision": classes[int(row.argmax())], "probabilities": [round(float(p), 6) for p in row]}
        for row in shares
    ]
