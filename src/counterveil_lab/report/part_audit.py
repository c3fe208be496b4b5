"""The section on the audit of the promises themselves."""

from __future__ import annotations

from collections.abc import Sequence

from counterveil_lab.report.blocks import Content, Verdict
from counterveil_lab.report.numbers import distinct, number, pick
from counterveil_lab.report.rules import tally
from counterveil_lab.report.tables import Measure, by_case, some
from counterveil_lab.results import Row

REACHED = 0.8  # of the claimed ε


def audit(rows: Sequence[Row]) -> Content:
    """The distinguishing game against the code itself."""
    rows = [row for row in rows if row.get("mechanism") and row.get("view")]
    bound = Measure("bound", "certified lower bound on ε", 2)
    ceiling = Measure("ceiling", "most that could be certified", 2)
    keys = {
        "mechanism": lambda row: str(row.get("mechanism")),
        "claimed ε": lambda row: f"{number(row.get('claimed_epsilon')) or 0:.3g}",
        "view": lambda row: str(row.get("view")),
        "pair of tables": lambda row: str(row.get("pair")),
        "δ": lambda row: f"{number(row.get('delta')) or 0:g}",
        "refuted": lambda row: "yes" if row.get("refuted") else "no",
    }
    strongest: dict[object, Row] = {}
    for row in rows:
        key = (row.get("mechanism"), row.get("claimed_epsilon"))
        kept = strongest.get(key)
        if kept is None or (number(row.get("bound")) or 0) > (number(kept.get("bound")) or 0):
            strongest[key] = row
    short = [row for row in strongest.values() if not str(row.get("view")).startswith("tree")]
    tables = some(
        by_case(short, keys, (bound, ceiling), "The strongest finding against each claim",
                notes=("A bound of 0 is *not detected*, never *private*.",)),
        by_case(rows, keys, (bound, ceiling), f"All {len(rows)} games", folded=True),
    )  # fmt: skip
    return Content((never_refuted(rows), faults_caught(rows), reaches(rows)), tables)


def _sound(row: Row) -> bool:
    name = str(row.get("mechanism"))
    return name != "paper" and not name.startswith("control")


def never_refuted(rows: Sequence[Row]) -> Verdict:
    """The promise itself."""
    outcomes = {}
    for name in dict.fromkeys(str(row.get("mechanism")) for row in rows if _sound(row)):
        mine = pick(rows, mechanism=name)
        bad = [row for row in mine if row.get("refuted")]
        outcomes[f"`{name}`"] = (not bad, f"{len(bad)} of {len(mine)} games refute it")
    return tally(
        "No promise is refuted",
        outcomes,
        "no certified lower bound above the claimed ε, at any view and pair",
        unit="mechanisms",
    )


def faults_caught(rows: Sequence[Row]) -> Verdict:
    """An audit is worth its ability to find something."""
    outcomes: dict[str, tuple[bool, str]] = {}
    for row in rows:
        if not _sound(row):
            name = f"{row.get('mechanism')} at ε {number(row.get('claimed_epsilon')) or 0:g}"
            before = outcomes.get(name, (False, ""))[0]
            outcomes[name] = (before or bool(row.get("refuted")), "")
    return tally(
        "`paper` and every planted fault are refuted at every claim",
        outcomes,
        "at least one game against each claim certifies more than the claimed ε",
        unit="claims",
    )


def reaches(rows: Sequence[Row]) -> Verdict:
    """A bound far below the claim would say that the game is weak, or the noise too large."""
    outcomes = {}
    for claim in distinct(rows, "claimed_epsilon"):
        mine = [row for row in pick(rows, mechanism="functional", claimed_epsilon=claim)
                if row.get("view") == "coefficients"]  # fmt: skip
        best = max((number(row.get("bound")) or 0 for row in mine), default=None)
        if best is not None and float(claim) >= 0.5:
            words = f"{best:.2f} certified"
            outcomes[f"ε {claim:g}"] = (best >= REACHED * float(claim), words)
    return tally(
        f"On the worst pair at least {REACHED:.0%} of ε is found, so the noise is no larger than "
        "it must be",
        outcomes,
        f"largest bound of `functional` at least {REACHED:g} times the claimed ε, for ε of 0.5 and "
        "more",
        unit="claims",
    )
