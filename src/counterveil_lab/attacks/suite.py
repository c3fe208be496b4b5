"""Every attack on your own veil and model, and a page that says what came of it.

The attacker sees what your users see: predictions and counterfactuals. Extraction is played several
times with other rows dealt to him; inference once. Every guidance that the veil has is attacked.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from counterveil.files import write_whole
from counterveil.signature import signer_line
from counterveil.veil import Veil
from counterveil_lab.attacks import inference
from counterveil_lab.attacks.attribute import SENSITIVE, why_not
from counterveil_lab.attacks.defences import ByVeil, build
from counterveil_lab.attacks.extraction import extract
from counterveil_lab.attacks.membership import without_model
from counterveil_lab.attacks.protocol import FULL, QUICK, Arena
from counterveil_lab.attacks.shadows import Candidates
from counterveil_lab.attacks.verdicts import gains, headline, verdicts
from counterveil_lab.results import Row, plain

DEALS, QUICK_DEALS = 5, 3
WAYS = {
    "model": "the default search, guidance model",
    "surrogate": "the default search, guidance surrogate",
    "paper": "Algorithm 2 as published",
}
NETWORKS = {"known": "usual", "unknown": "deeper"}  # the lab's: of yours nothing is known
Told = Callable[[str, int, int], None]  # what was done, how many steps are done, and of how many

_PACKAGES = (("counterveil_lab", "attacks"), ("counterveil", "pages"))
_TEMPLATES = jinja2.Environment(
    loader=jinja2.ChoiceLoader([jinja2.PackageLoader(*package) for package in _PACKAGES]),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)


@dataclass(frozen=True, eq=False)
class Findings:
    """All rows, and what they say. `facts`: what was attacked; `notes`: what could not be."""

    veil: Veil
    facts: dict[str, str]
    extraction: list[Row]
    inference: list[Row]
    notes: tuple[str, ...] = ()

    @property
    def verdicts(self) -> list[str]:
        """What follows: extraction, membership, linkage, attribute."""
        return [*verdicts(self.extraction, self.inference), *self.notes]

    def save(self, page: Path) -> tuple[Path, Path]:
        """The page, and its numbers as JSON beside it."""
        numbers = page.with_suffix(".json")
        content = {
            "facts": self.facts,
            "statement": self.veil.statement.model_dump(mode="json"),
            "extraction": self.extraction,
            "inference": self.inference,
            "headline": headline(self.extraction),
            "verdicts": self.verdicts,
        }
        text = json.dumps(plain(content), indent=1, allow_nan=False, ensure_ascii=False)
        write_whole(numbers, (text + "\n").encode())
        write_whole(page, self.page().encode())
        return page, numbers

    def page(self) -> str:
        """One HTML file that loads nothing."""
        linked = [row for row in self.inference if row["attack"] == "linkage"]
        inferred = [row for row in self.inference if row.get("value") == "all"]
        return _TEMPLATES.get_template("page.html").render(
            title=f"Attacks on {self.veil.schema.name}",
            facts=self.facts,
            headline=headline(self.extraction),
            attackers=_by_attacker(self.extraction),
            membership=[row for row in self.inference if row.get("auc") is not None],
            linkage=[row for row in linked if row["counterfactuals"]],
            attribute=[x for x in inferred if x["target"] != "f" or x["defence"] == "none"],
            verdicts=self.verdicts,
            statement=self.veil.statement,
            signed=signer_line(self.veil.signer),
        )


def attack(
    veil: Veil,
    model: Any,
    members: pd.DataFrame,
    others: pd.DataFrame,
    *,
    quick: bool = False,
    attribute: str = SENSITIVE,
    told: Told = lambda words, done, total: None,
) -> Findings:
    """Play everything against a veil and the model it explains.

    `members`: the rows that both were made from; `others`: rows of the same kind that neither has
    seen, at least four times as many as you want candidates. Both with the label. `attribute`: the
    column that is inferred, if it is one of categories. `told` is called after each step.
    """
    size, deals = (QUICK, QUICK_DEALS) if quick else (FULL, DEALS)
    epsilon, delta = veil.statement.epsilon, veil.statement.delta
    arenas = [Arena.own(veil.schema, members, others, model, deal, size) for deal in range(deals)]
    first = arenas[0]
    names, missing = names_of(veil), why_not(first, attribute)
    # The first step, extraction, membership of f and of each way, and the attribute of all of them.
    total = 1 + deals * len(names) + 3 + 3 * len(names) + (missing is None) * (1 + len(names))
    done = 0

    def say(words: str) -> None:
        nonlocal done
        done += 1
        told(words, done, total)

    dealt = f"{len(first.d4)} others to tell from them, {len(first.d2)} rows to ask about"
    say(f"{len(first.d1)} members, {dealt}")
    budget = epsilon or float("inf")
    built = [build(name, first, epsilon=budget, size=size, veil=veil) for name in names]
    defences = [each for each in built if isinstance(each, ByVeil)]
    stolen: list[Row] = []
    for number, arena in enumerate(arenas, 1):
        for defence in defences:
            rows = extract(replace(defence, arena=arena), size, epsilon=epsilon, delta=delta)
            stolen += [{**row, "architecture": NETWORKS[row["architecture"]]} for row in rows]
            say(f"extraction {number}/{deals}: {defence.name}")
    people = Candidates.of(first, size.candidates)
    found = [without_model(people, first.seed), *inference.on_model(first, size, say)]
    if missing is None:
        found += inference.on_attribute(first, None, size, say, name=attribute)
    found = [{"defence": "none", **row} for row in found]
    for defence in defences:
        inferred = inference.on_defence(first, defence, size, say, epsilon=epsilon)
        if missing is None:
            inferred += inference.on_attribute(first, defence, size, say, name=attribute)
        found += [{"defence": defence.name, **row} for row in inferred]
    facts = {
        "veil": f"{veil.statement.mechanism}, {veil.statement.amount}",
        "guarantee": veil.statement.level.value,
        "accuracy of the model": f"{stolen[0]['target_accuracy']:.3f}",
        "members": f"{len(members):,}",
        "others": f"{len(others):,}, of which {first.dropped:.1%} equal a member and are left out",
        "attacked": "; ".join(f"{name}: {WAYS[name.rpartition('-')[2]]}" for name in names),
        "deals of the rows": str(deals),
    }
    return Findings(veil, facts, stolen, found, () if missing is None else (missing,))


def names_of(veil: Veil) -> tuple[str, ...]:
    """What a veil can be asked: by either guidance; one of `paper` also as the paper does."""
    mechanism = veil.statement.mechanism
    names = [f"{mechanism}-model"]
    if veil.surrogate is not None:
        names.append(f"{mechanism}-surrogate")
    return ("paper", *names) if mechanism == "paper" else tuple(names)


def _by_attacker(rows: Sequence[Row]) -> list[dict[Any, Any]]:
    """Mean fidelity and gain of every attacker with the most queries."""
    table = gains(rows)
    table = table[table.queries == table.queries.max()]
    keys = ["defence", "predictions", "architecture", "attacker"]
    means = table.groupby(keys, sort=False)[["fidelity", "fidelity_uniform", "accuracy", "gain"]]
    return means.mean().reset_index().to_dict("records")
