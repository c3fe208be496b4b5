"""What may be said as keywords: of a question, of a run over files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from counterveil.cluster import Cluster, Engine
from counterveil.errors import RequestError
from counterveil.search.constraints.bounds import ManyRules
from counterveil.search.constraints.rules import RuleChoices, Rules
from counterveil.search.options import SearchChoices


class Choices(SearchChoices, RuleChoices, total=False):
    """What may be said as keywords of `Explainer.explain`."""


class FileChoices(Choices, total=False):
    """What may be said as keywords of `Explainer.explain_files`."""

    k: int
    rules: Rules | None
    immutable: Collection[str]
    copied: Sequence[str]  # columns of the queries that are copied beside the answers, as copied_…
    engine: Engine | Cluster  # "here"; "ray": all processors of this machine; or a Cluster
    part_rows: int  # of a part, at most: what a run that is cut off has to do again
    progress: bool


def rules_in(choices: Choices, rules: ManyRules) -> tuple[ManyRules, SearchChoices]:
    """The rules, those given as keywords included, and what is left to be said of the search."""
    given = {name: value for name, value in choices.items() if name in RuleChoices.__annotations__}
    search = {name: value for name, value in choices.items() if name not in given}
    if given and rules is not None:
        raise RequestError(f"give {', '.join(given)} in rules, or all rules as keywords; not both")
    return (Rules(**given) if given else rules), search  # type: ignore[arg-type, return-value]
