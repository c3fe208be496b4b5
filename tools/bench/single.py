"""The part `single` of `bench search`: where the time of a single believable answer goes.

| stage | what |
|---|---|
| whole | `Explainer.explain` with one row, from table to answer |
| read | the row is read, and the model decides on it |
| search | the search for the answer |
| asking | what the model takes of the search |

Each stage is timed by itself. The whole also has rules, checks and the model's last word.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pandas as pd
import torch
from torch import Tensor

from bench import head, peers
from bench.peers import EPSILON, Size, release
from counterveil.models import Rows, TargetModel
from counterveil.population import MixedPopulation
from counterveil.search import Explainer
from counterveil.search.actions.search import answers, believable_context
from counterveil.search.asking import Question
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.bounds import box_around
from counterveil.search.constraints.projection import Snap
from counterveil_lab.believability import WISHES, refused
from counterveil_lab.results import Row

Answer = TypeVar("Answer")


class TimedModel(TargetModel):
    """A model that adds up the seconds that its answers take, of the clock and the processor."""

    def __init__(self, model: TargetModel) -> None:
        super().__init__(model.schema)
        self.model, self.spent = model, _no_time()

    def ask(self, rows: Rows) -> Tensor:
        answer, spent = _timed(partial(self.model.ask, rows))
        self.spent = {name: self.spent[name] + spent[name] for name in spent}
        return answer


def single(size: Size, seeds: int) -> Iterator[Row]:
    """Adult: refused people ask one by one, their personal features held; a row for each stage.

    Times are medians over the queries. `share`: of the whole, by the processor's time.
    """
    evaluation, wish = peers.evaluation_of("adult", 0, size), WISHES["adult"]
    veil = release(evaluation, EPSILON, 0, size)
    goal = evaluation.data.schema.label.classes.index(wish.target)
    queries = refused(evaluation.data, evaluation.judge, goal, size.queries)
    explainer, model = Explainer(veil, evaluation.model), TimedModel(evaluation.judge)
    population = veil.population()
    assert isinstance(population, MixedPopulation), "Adult is a mixed table"
    here, held = torch.device("cpu"), wish.personal
    context = believable_context(population, evaluation.judge, here, stands_in=False)
    question, projection = Question(model), Snap(explainer.encoding)
    spent: dict[str, list[Row]] = {"whole": [], "read": [], "search": [], "asking": []}
    for number in (0, *range(len(queries))):  # the first call does not count
        row = queries.iloc[number : number + 1]
        points = explainer.encoding.encode(row)
        box, asked = box_around(explainer.encoding, points, immutable=held), torch.tensor(points)
        before = evaluation.judge.ask(Rows.of_frame(row, explainer.encoding))
        batch = QueryBatch(asked.float(), torch.tensor([goal]), box, before=before)
        model.spent = _no_time()
        explain = partial(explainer.explain, row, wish.target, immutable=held, progress=False)
        spent["whole"].append(_timed(partial(explain, prefer="believable"))[1])
        spent["read"].append(_timed(partial(explainer.decide, row))[1])
        search = partial(answers, context, question, batch, projection, 1)
        spent["search"].append(_timed(search)[1])
        spent["asking"].append(model.spent)
    found = {stage: pd.DataFrame(each[1:]).median() for stage, each in spent.items()}
    for stage, times in found.items():
        about = {**head("adult", "counterveil-believable", EPSILON), "batch": 1, "stage": stage}
        about |= {"timed_queries": len(queries), **{name: times[name] for name in _no_time()}}
        yield {**about, "share": times.cpu_seconds_per_query / found["whole"].cpu_seconds_per_query}


def _no_time() -> Row:
    return {"seconds_per_query": 0.0, "cpu_seconds_per_query": 0.0}


def _timed(call: Callable[[], Answer]) -> tuple[Answer, Row]:
    """What a call gives, and its seconds by the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    answer = call()
    return answer, {
        "seconds_per_query": time.perf_counter() - clock,
        "cpu_seconds_per_query": time.process_time() - processor,
    }
