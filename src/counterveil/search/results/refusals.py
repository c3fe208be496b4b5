"""How a search ended, and what is known where it found no answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from counterveil.encoding import Array

NO_FURTHER = "no further answer that differs"
UNCONVINCED = "no row within the rules convinced"


class Status(StrEnum):
    """How the search for one answer ended.

    FOUND: the model gives the target class. NOT_FOUND: no such row was found. IMPOSSIBLE: it is
    proved that the model gives the target class to no row within the rules. ALREADY: the model
    gives it to the query itself.
    """

    FOUND = "found"
    NOT_FOUND = "not_found"
    IMPOSSIBLE = "impossible"
    ALREADY = "already"


@dataclass(frozen=True, eq=False)
class Opening:
    """One rule without which a query would have an answer.

    - `rule`: its name, such as "immutable", "direction", "allowed", "transitions", "max_changes" or
      "only_one".
    - `feature`: the feature that it limits; None for a rule about several features.
    - `probability`: of the target class for `row`.
    - `row`: an accepted row that breaks this rule alone, encoded, (width,).
    - `limit`: the number that the rule names, such as that of max_changes; None if not known.
    """

    rule: str
    feature: str | None
    probability: float
    row: Array
    limit: int | None = None
