"""How to look for answers: what may be said about the search, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from counterveil.errors import RequestError
from counterveil.search.paper import algorithm2

MOST_ITERATIONS = 1_000_000  # of Algorithm 2
SURE_SURROGATE = 0.95  # the probability asked of the surrogate, which is not the model that decides

Guidance = Literal["model", "surrogate"]
Method = Literal["amortised", "iterations"]
Keep = Literal["best", "last"]
Prefer = Literal["believable", "nearest"]


class SearchChoices(TypedDict, total=False):
    """What may be said about the search as keywords of `Explainer.explain`."""

    prefer: Prefer | None
    method: Method
    iterations: int | None
    keep: Keep
    polish: bool | None
    margin: float | None
    seed: int


@dataclass(frozen=True)
class SearchOptions:
    """How to look for answers.

    - `method`: "amortised", or "iterations" for Algorithm 2.
    - `iterations`: of Algorithm 2, or to refine an amortised answer.
    - `keep`: the "best" row, which is the nearest accepted one on the way, or the "last" one, as in
      the paper.
    - `polish`: whether to give back what an answer does not need.
    - `margin`: the probability of the target class to be accepted; 0: it only has to win.
    - `soft_margin`: where no row reaches the margin, one that only wins is accepted.
    - `seed`: for the variety of several answers to one query.
    - `prefer`: "nearest" for a small L2 change, "believable" for what people could believe and
      act on.
    """

    method: Method = "amortised"
    iterations: int = 0
    keep: Keep = "best"
    polish: bool = True
    margin: float = 0.0
    soft_margin: bool = False
    seed: int = 0
    prefer: Prefer = "nearest"


OF_THE_NEAREST = ("iterations", "keep", "polish")  # only that search knows them, and Algorithm 2


def search_options(
    guidance: Guidance, choices: SearchChoices, *, has_population: bool = False
) -> SearchOptions:
    """The options that were asked for, checked; what is missing or None depends on the guidance.

    Believable answers need a population of a mixed table or of images; they are the usual ones
    where there is one, unless something is said that only the search for the nearest knows.
    """
    by_model, method = guidance == "model", choices.get("method")
    steered = [name for name in OF_THE_NEAREST if choices.get(name) is not None]
    steered += ["method 'iterations'"] if method == "iterations" else []
    prefer = choices.get("prefer")
    if prefer not in {None, "believable", "nearest"}:
        raise RequestError("prefer must be 'believable' or 'nearest'")
    if prefer == "believable" and not has_population:
        raise RequestError(
            "prefer 'believable' needs a population of a mixed table or of images: a veil of "
            "mechanism functional; leave it out, or ask for 'nearest'"
        )
    if prefer == "believable" and steered:
        raise RequestError(f"{steered[0]} is for prefer 'nearest'; leave one of both out")
    prefer = prefer or ("believable" if has_population and not steered else "nearest")
    usual = {
        "prefer": prefer,
        "iterations": algorithm2.ITERATIONS if method == "iterations" else 0,
        "polish": by_model,
        "margin": 0.0 if by_model or prefer == "believable" else SURE_SURROGATE,
    }
    missing = {name: value for name, value in usual.items() if choices.get(name) is None}
    chosen: dict[str, Any] = {**choices, **missing}
    options = SearchOptions(**chosen, soft_margin="margin" in missing)
    if not 0 <= options.iterations <= MOST_ITERATIONS:
        raise RequestError(f"iterations must be a whole number from 0 to {MOST_ITERATIONS}")
    if options.method not in {"amortised", "iterations"}:
        raise RequestError("method must be 'amortised' or 'iterations'")
    if options.keep not in {"best", "last"} or (options.keep == "last" and method != "iterations"):
        raise RequestError("keep must be 'best', or 'last' with method 'iterations'")
    if not 0 <= options.margin < 1:
        raise RequestError("margin must be a probability from 0 to below 1")
    return options
