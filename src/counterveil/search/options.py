"""How to look for answers: what may be said about the search, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from counterveil.errors import RequestError
from counterveil.search.paper.algorithm2 import ITERATIONS

MOST_ITERATIONS = 1_000_000  # of Algorithm 2
SURE_SURROGATE = 0.95  # the probability asked of the surrogate, which is not the model that decides

Guidance = Literal["model", "surrogate"]
Method = Literal["actions", "iterations"]
Keep = Literal["best", "last"]
Prefer = Literal["believable", "nearest"]


class SearchChoices(TypedDict, total=False):
    """What may be said about the search as keywords of `Explainer.explain`."""

    prefer: Prefer | None
    method: Method | None
    iterations: int | None
    keep: Keep
    polish: bool | None
    margin: float | None
    seed: int


@dataclass(frozen=True)
class SearchOptions:
    """How to look for answers.

    - `method`: "actions", the search over sets of actions of mixed tables, or "iterations" for
      Algorithm 2.
    - `iterations`: of Algorithm 2, at most.
    - `keep`: the "best" row, which is the nearest accepted one on the way, or the "last" one, as in
      the paper.
    - `polish`: whether to give back what an answer of Algorithm 2 does not need.
    - `margin`: the probability of the target class to be accepted; 0: it only has to win.
    - `soft_margin`: where no row reaches the margin, one that only wins is accepted.
    - `seed`: for the variety of several answers to one query.
    - `prefer`: "nearest" for a small L2 change, "believable" for what people could believe and
      act on.
    """

    method: Method = "iterations"
    iterations: int = ITERATIONS
    keep: Keep = "best"
    polish: bool = True
    margin: float = 0.0
    soft_margin: bool = False
    seed: int = 0
    prefer: Prefer = "nearest"


OF_ALGORITHM_2 = ("iterations", "keep", "polish")  # only Algorithm 2 knows them


def search_options(
    guidance: Guidance,
    choices: SearchChoices,
    *,
    has_population: bool = False,
    has_actions: bool = False,
) -> SearchOptions:
    """The options that were asked for, checked; what is missing or None depends on the guidance.

    Believable answers need a population of a mixed table or of images; they are the usual ones
    where there is one, unless something is said that only Algorithm 2 knows. `has_actions`: whether
    the table is mixed and has a population, so that sets of actions can be searched.
    """
    by_model, method, prefer = guidance == "model", choices.get("method"), choices.get("prefer")
    steered = [name for name in OF_ALGORITHM_2 if choices.get(name) is not None]
    if prefer not in {None, "believable", "nearest"}:
        raise RequestError("prefer must be 'believable' or 'nearest'")
    if method not in {None, "actions", "iterations"}:
        raise RequestError("method must be 'actions' or 'iterations'")
    if prefer == "believable" and not has_population:
        raise RequestError(
            "prefer 'believable' needs a population of a mixed table or of images: a veil of "
            "mechanism functional; leave it out, or ask for 'nearest'"
        )
    if prefer == "believable" and (steered or method == "iterations"):
        wrong = (*steered, "method 'iterations'")[0]
        raise RequestError(f"{wrong} is for prefer 'nearest'; give one of the two")
    if method == "actions" and steered:
        raise RequestError(f"{steered[0]} is for method 'iterations'; give one of the two")
    if method == "actions" and not has_actions:
        raise RequestError("method 'actions' is for mixed tables with a population; leave it out")
    by_algorithm_2 = bool(steered) or method == "iterations"
    usual = {
        "prefer": "believable" if has_population and not by_algorithm_2 else "nearest",
        "method": "actions" if has_actions and not by_algorithm_2 else "iterations",
        "iterations": ITERATIONS,
        "polish": by_model,
    }
    missing = {name: value for name, value in usual.items() if choices.get(name) is None}
    chosen: dict[str, Any] = {**choices, **missing}
    soft = chosen.get("margin") is None
    if soft:
        sure = by_model or chosen["prefer"] == "believable"
        chosen["margin"] = 0.0 if sure else SURE_SURROGATE
    options = SearchOptions(**chosen, soft_margin=soft)
    if not 0 <= options.iterations <= MOST_ITERATIONS:
        raise RequestError(f"iterations must be a whole number from 0 to {MOST_ITERATIONS}")
    if options.keep not in {"best", "last"}:
        raise RequestError("keep must be 'best' or 'last'")
    if not 0 <= options.margin < 1:
        raise RequestError("margin must be a probability from 0 to below 1")
    return options
