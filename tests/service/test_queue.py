"""The queue before the search: whose turn it is, what stops, and what costs whom.

The search is played: it answers each row with the row itself. That what hangs, or is wrong, costs
its asker alone is in test_service_api.py.
"""

from __future__ import annotations

import asyncio
import time

import pytest

pytest.importorskip("fastapi", reason="counterveil[serve] is not installed")

from counterveil.search.asking import go_on
from counterveil.service import batcher as queue
from counterveil.service.batcher import AT_ONCE, Batcher, QueueFull
from counterveil.service.questions import Question
from counterveil.service.responses import Problem

SLOW = {"is": "slow"}


@pytest.fixture
def searches(monkeypatch):
    """The rows of every search, in order."""
    found = []

    def answered(_, pieces):
        rows = [row for piece in pieces for row in piece.rows]
        found.append(rows)
        while SLOW in rows:
            time.sleep(0.01)
            go_on()
        return rows

    monkeypatch.setattr(queue, "_answered", answered)
    return found


def played(work, **settings):
    """What `work` returns, a coroutine function that is given a running queue."""

    async def run():
        batcher = Batcher(None, **settings)
        try:
            return await work(batcher)
        finally:
            await batcher.close()

    return asyncio.run(run())


def row(number):
    return {"is": number}


def ask(batcher, client, rows, k=1):
    return asyncio.create_task(batcher.explain(client, rows, Question(k=k)))


def test_a_short_question_passes_between_the_pieces_of_a_long_one(searches):
    async def work(batcher):
        long = ask(batcher, "one", [row(n) for n in range(1000)])
        await asyncio.sleep(0)
        short = ask(batcher, "two", [row(-1)])
        assert await short == [row(-1)]
        assert not long.done()
        assert await long == [row(n) for n in range(1000)]

    played(work)
    assert any(row(-1) in each for each in searches[:2])
    assert max(map(len, searches)) <= AT_ONCE


def test_a_piece_is_as_long_as_it_costs(searches):
    played(lambda batcher: ask(batcher, "one", [row(n) for n in range(60)], k=10))
    assert [len(each) for each in searches] == [25, 25, 10]


def test_a_short_question_does_not_wait_for_every_long_one(searches):
    async def work(batcher):
        long = [ask(batcher, name, [row(name)] * 60, k=10) for name in "abcdefgh"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for name in ("one", "two", "three"):
            await ask(batcher, name, [row(name)])
        assert len(searches) <= 8
        await asyncio.gather(*long)

    played(work)


def test_turns_go_by_what_clients_have_cost(searches):
    """Forty long questions of one client, of a hundred rows; three others ask one row each time."""

    async def polite(batcher, name):
        for turn in range(10):
            await batcher.explain(name, [row(f"{name} {turn}")], Question(prefer="nearest"))

    async def work(batcher):
        greedy = [ask(batcher, "greedy", [row(n)] * 100) for n in range(40)]
        await asyncio.gather(*(polite(batcher, name) for name in "abc"))
        for task in greedy:
            task.cancel()

    played(work)
    of_greedy = [each for each in searches if len(each) >= 100]
    assert len(of_greedy) <= 4  # a polite client asks ten rows in all, and has waited for few
    assert len(searches) - len(of_greedy) <= 12  # the polite ones are searched together


def test_a_client_has_a_share_of_a_search_while_others_wait(searches):
    async def work(batcher):
        some = [ask(batcher, "greedy", [row(0)]) for _ in range(200)]
        others = [ask(batcher, name, [row(name)]) for name in "abcdefg"]
        await asyncio.gather(*some, *others)

    played(work)
    assert searches[0].count(row(0)) <= AT_ONCE / 8
    assert all(row(name) in searches[0] for name in "abcdefg")


def test_what_nobody_waits_for_is_not_searched(searches):
    async def work(batcher):
        tasks = [ask(batcher, "rude", [SLOW]) for _ in range(9)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        assert await batcher.explain("polite", [row(1)], Question()) == [row(1)]
        assert not batcher.rows_waiting

    played(work, patience=60.0, seconds=60.0)
    assert len(searches) <= 2


def test_a_slow_question_costs_only_its_asker(searches):
    """However often it is asked."""

    async def work(batcher):
        for _ in range(6):
            slow = [ask(batcher, "slow", [SLOW]) for _ in range(3)]
            for number in range(20):
                assert await batcher.explain("other", [row(number)], Question()) == [row(number)]
                assert not batcher.fails
            for task in slow:
                with pytest.raises(Problem, match="takes too long"):
                    await task
        return batcher.fails

    assert not played(work, patience=0.02, seconds=0.1)


def test_long_questions_rest_while_short_ones_are_answered(searches, monkeypatch):
    """However many there are. `steps`: what was done for whom."""
    steps = []

    def answered(_, pieces):
        rows = [row for piece in pieces for row in piece.rows]
        for _ in range(max(each["is"] for each in rows)):
            go_on()
            time.sleep(0.002)
            steps.append(rows)
        return rows

    async def work(batcher):
        long = [ask(batcher, name, [row(10_000 + place)]) for place, name in enumerate("abcdefgh")]
        while len({each[0]["is"] for each in steps}) < 8:
            await asyncio.sleep(0.01)
        steps.clear()
        for _ in range(5):
            await batcher.explain("short", [row(10)], Question(prefer="nearest"))
        for task in long:
            task.cancel()
        assert steps.count([row(10)]) == 50
        assert len(steps) < 150

    monkeypatch.setattr(queue, "_answered", answered)
    played(work, patience=0.05)


def test_a_long_question_is_given_up_between_its_pieces(searches):
    async def work(batcher):
        with pytest.raises(Problem, match="takes too long"):
            await batcher.explain("one", [row(n) for n in range(9999)], Question())

    played(work, seconds=0.0, at_once=1)
    assert len(searches) <= 1


def test_a_full_queue_refuses_those_who_have_filled_it(searches):
    async def work(batcher):
        greedy = [ask(batcher, "greedy", [row(n)] * 10) for n in range(20)]
        await asyncio.sleep(0)
        assert await batcher.explain("other", [row(1)] * 10, Question()) == [row(1)] * 10
        said = await asyncio.gather(*greedy, return_exceptions=True)
        assert sum(isinstance(each, QueueFull) for each in said) == 10

    played(work, most_waiting=100)
