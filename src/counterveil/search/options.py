"""What may be said of the search, and how it is then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictInt

from counterveil.errors import RequestError
from counterveil.options import Must, Options, Seed
from counterveil.search.constraints.bounds import ManyRules
from counterveil.search.constraints.rules import Rules
from counterveil.search.paper.algorithm2 import ITERATIONS

MOST = 1_000_000  # iterations of Algorithm 2
MOST_ANSWERS = 1000  # to one query
SURE_SURROGATE = 0.95  # the probability asked of the surrogate, which is not the model that decides
OF_ALGORITHM_2 = ("iterations", "keep", "polish")  # only Algorithm 2 knows them

Guidance = Literal["model", "surrogate"]
Method = Annotated[Literal["actions", "iterations"], Must(" must be 'actions' or 'iterations'")]
Keep = Annotated[Literal["best", "last"], Must(" must be 'best' or 'last'")]
Prefer = Annotated[Literal["believable", "nearest"], Must(" must be 'believable' or 'nearest'")]
Ways = Annotated[
    StrictInt,
    Field(ge=1, le=MOST_ANSWERS),
    Must(f" must be a whole number from 1 to {MOST_ANSWERS}"),
]
Iterations = Annotated[StrictInt, Field(ge=0, le=MOST), Must(f" must be from 0 to {MOST}")]
Margin = Annotated[
    float,
    Field(ge=0, lt=1, allow_inf_nan=False),
    Must(" must be a probability from 0 to below 1"),
]


class SearchOptions(Options):
    """How to look for answers. What is None or left out is as usual for the veil and the model."""

    k: Ways = 1
    """How many different answers to each query."""
    prefer: Prefer = "nearest"
    """A small L2 change; or "believable": what people could act on. That is the usual one where
    the veil has a population of a mixed table or of images."""
    method: Method = "iterations"
    """Algorithm 2; or "actions": sets of actions, the usual one in mixed tables."""
    iterations: Iterations = ITERATIONS
    """Of Algorithm 2, at most."""
    keep: Keep = "best"
    """The nearest accepted row on the way of Algorithm 2, or as in the paper the "last" one."""
    polish: Annotated[bool, Must(" must be True or False")] = True
    """Whether to give back what an answer of Algorithm 2 does not need."""
    margin: Margin = 0.0
    """The probability of the target class to be accepted; 0: it has to win."""
    seed: Seed = 0
    """For the variety of several answers to one query."""

    @property
    def soft_margin(self) -> bool:
        """Whether, where no row reaches the margin, one that wins is accepted: nobody asked."""
        return "margin" not in self.model_fields_set

    def settled(self, guidance: Guidance, *, can_believe: bool, can_act: bool) -> Self:
        """These options, checked, with what was not said as usual for the guidance and the veil.

        `can_believe`: whether there is a population of a mixed table or of images, which believable
        answers need; they are the usual ones unless something is said that only Algorithm 2 knows.
        `can_act`: whether sets of actions can be searched: in mixed tables, but for mechanism
        paper.
        """
        said = self.model_fields_set
        believable = "prefer" in said and self.prefer == "believable"
        by_actions = "method" in said and self.method == "actions"
        steered = [name for name in OF_ALGORITHM_2 if name in said]
        if "method" in said and not by_actions:
            steered.append("method 'iterations'")
        if believable and not can_believe:
            raise RequestError(
                "prefer 'believable' needs a population of a mixed table or of images: a veil of "
                "mechanism functional; leave it out, or ask for 'nearest'"
            )
        if by_actions and not can_act:
            raise RequestError("method 'actions' is for mixed tables, and not for mechanism paper")
        if steered and (believable or by_actions):
            words = "is for Algorithm 2; leave it out, or ask for 'nearest'"
            raise RequestError(f"{steered[0]} {words}")
        usual: dict[str, Any] = {
            "prefer": "believable" if can_believe and not steered else "nearest",
            "method": "actions" if can_act and not steered else "iterations",
            "polish": guidance == "model",
        }
        found = dict(self) | {name: each for name, each in usual.items() if name not in said}
        if guidance == "surrogate" and found["prefer"] == "nearest" and self.soft_margin:
            found["margin"] = SURE_SURROGATE
        return self.model_construct(said, **found)


def rules_in(options: Mapping[str, Any], rules: ManyRules) -> tuple[ManyRules, SearchOptions]:
    """The rules, those given as keywords included, and what is said of the search."""
    said = {name: each for name, each in options.items() if each is not None}
    of_search = {name: said.pop(name) for name in SearchOptions.model_fields if name in said}
    if said and rules is not None:
        raise RequestError(f"give {', '.join(said)} in rules, or all rules as keywords; not both")
    return (Rules(**said) if said else rules), SearchOptions(**of_search)
