"""What may be said as keywords of a question or a run over files, and how the search is then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from counterveil.cluster import Cluster, Engine
from counterveil.errors import RequestError
from counterveil.hints import did_you_mean
from counterveil.search.constraints.bounds import ManyRules
from counterveil.search.constraints.rules import RuleChoices, Rules
from counterveil.search.paper.algorithm2 import ITERATIONS

MOST = 1_000_000  # iterations of Algorithm 2
SURE_SURROGATE = 0.95  # the probability asked of the surrogate, which is not the model that decides
NAMED = ("target", "k", "rules", "immutable", "copied", "progress")  # other keywords of a question
OF_ALGORITHM_2 = ("iterations", "keep", "polish")  # only Algorithm 2 knows them

Guidance = Literal["model", "surrogate"]
Method = Literal["actions", "iterations"]
Keep = Literal["best", "last"]
Prefer = Literal["believable", "nearest"]


class SearchChoices(TypedDict, total=False):
    """What may be said about the search."""

    prefer: Prefer | None
    method: Method | None
    iterations: int | None
    keep: Keep | None
    polish: bool | None
    margin: float | None
    seed: int


class Choices(SearchChoices, RuleChoices, total=False):
    """What may be said as keywords of `Explainer.explain`."""


class FileChoices(Choices, total=False):
    """What may be said as keywords of `Explainer.explain_files`."""

    k: int
    rules: Rules | None
    immutable: Collection[str]
    copied: Sequence[str] | None  # columns of the queries that go with the answers; see `explain`
    engine: Engine | Cluster  # "here"; "ray": all processors of this machine; or a Cluster
    part_rows: int  # of a part, at most: what a run that is cut off has to do again
    progress: bool


@dataclass(frozen=True)
class SearchOptions:
    """How to look for answers."""

    method: Method = "iterations"  # "actions": sets of actions; "iterations": Algorithm 2
    iterations: int = ITERATIONS  # of Algorithm 2, at most
    keep: Keep = "best"  # the nearest accepted row on its way, or as in the paper the "last" one
    polish: bool = True  # whether to give back what an answer of Algorithm 2 does not need
    margin: float = 0.0  # the probability of the target class to be accepted; 0: it has to win
    soft_margin: bool = False  # where no row reaches the margin, one that wins is accepted
    seed: int = 0  # for the variety of several answers to one query
    prefer: Prefer = "nearest"  # a small L2 change; "believable": what people could act on


def search_options(
    guidance: Guidance, choices: SearchChoices, *, can_believe: bool, can_act: bool
) -> SearchOptions:
    """The options that were asked for, checked; what is missing or None depends on the guidance.

    `can_believe`: whether there is a population of a mixed table or of images, which believable
    answers need; they are the usual ones unless something is said that only Algorithm 2 knows.
    `can_act`: whether sets of actions can be searched: in mixed tables, but for mechanism paper.
    """
    given: dict[str, Any] = {name: each for name, each in choices.items() if each is not None}
    prefer, method = given.get("prefer"), given.get("method")
    steered = [name for name in OF_ALGORITHM_2 if name in given]
    steered += ["method 'iterations'"] if method == "iterations" else []
    usual: dict[str, Any] = {
        "prefer": "believable" if can_believe and not steered else "nearest",
        "method": "actions" if can_act and not steered else "iterations",
        "polish": guidance == "model",
    }
    sure = guidance == "surrogate" and (prefer or usual["prefer"]) == "nearest"
    usual |= {"margin": SURE_SURROGATE if sure else 0.0, "soft_margin": "margin" not in given}
    options = SearchOptions(**{**usual, **given})
    is_wrong = {
        "prefer must be 'believable' or 'nearest'": options.prefer not in {"believable", "nearest"},
        "method must be 'actions' or 'iterations'": options.method not in {"actions", "iterations"},
        "keep must be 'best' or 'last'": options.keep not in {"best", "last"},
        "margin must be a probability from 0 to below 1": not 0 <= options.margin < 1,
        f"iterations must be from 0 to {MOST}": not 0 <= options.iterations <= MOST,
        "prefer 'believable' needs a population of a mixed table or of images: a veil of mechanism "
        "functional; leave it out, or ask for 'nearest'": not can_believe
        and prefer == "believable",
        "method 'actions' is for mixed tables, and not for mechanism paper": not can_act
        and method == "actions",
    }
    for message, wrong in is_wrong.items():
        if wrong:
            raise RequestError(message)
    if steered and (prefer == "believable" or method == "actions"):
        raise RequestError(f"{steered[0]} is for Algorithm 2; leave it out, or ask for 'nearest'")
    return options


def rules_in(choices: Choices, rules: ManyRules) -> tuple[ManyRules, SearchChoices]:
    """The rules, those given as keywords included, and what is left to be said of the search."""
    known = [*NAMED, *Choices.__annotations__]
    for name in choices:
        if name not in known:
            raise RequestError(f"no option {name!r}{did_you_mean(name, known)}")
    given = {name: value for name, value in choices.items() if name in RuleChoices.__annotations__}
    search = {name: value for name, value in choices.items() if name not in given}
    if given and rules is not None:
        raise RequestError(f"give {', '.join(given)} in rules, or all rules as keywords; not both")
    return (Rules(**given) if given else rules), search  # type: ignore[arg-type, return-value]
