"""The section on model extraction: Table 4, and attackers who know of the defence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterveil_lab.attacks.controls import of_extraction
from counterveil_lab.attacks.extraction import ATTACKERS, BASES
from counterveil_lab.report import paper_values as printed
from counterveil_lab.report.blocks import Cell, Content, Table
from counterveil_lab.report.claims import (
    NEEDED,
    below_base,
    helps_without_privacy,
    no_gain,
    of_controls,
    stronger_with_queries,
)
from counterveil_lab.report.defended import (
    Source,
    base,
    largest,
    names_of,
    of,
    source_name,
    sources,
)
from counterveil_lab.report.numbers import average, distinct, pick
from counterveil_lab.report.tables import Measure, repeats_note, some
from counterveil_lab.report.ways import dataset_name
from counterveil_lab.results import Row

JUDGED = ("paper", "functional-model", "functional-surrogate")
PRINTED = {"none": "base", "dice-gradient": "non-dp", "paper": "dpc", "functional-model": "dpc"}
ACCURACY = Measure("accuracy", "accuracy, %", 1, "", 100.0)
FIDELITY = Measure("fidelity", "agreement with f, %", 1, "", 100.0)
EVENLY = Measure("fidelity_uniform", "agreement with f on legal rows drawn evenly, %", 1, "", 100.0)


def extraction(rows: Sequence[Row]) -> Content:
    """Table 4, and what it leaves out."""
    settings = list(_settings(rows))
    tables = [_by_queries(*setting) for setting in settings]
    for measure in (FIDELITY, EVENLY):
        tables += [_by_attacker(*setting, measure) for setting in settings]
    known = pick(as_paper(rows), architecture="known") or as_paper(rows)
    whole = [row for row in rows if row.keys() >= NEEDED]
    verdicts = (
        helps_without_privacy(known),
        below_base(known, "paper", whose="paper"),
        stronger_with_queries(known),
        below_base(known, "functional-model"),
        *(no_gain(rows, d, said) for said in ("probabilities", "labels") for d in JUDGED),
        *(no_gain(rows, d, "labels", EVENLY.column) for d in JUDGED),
        *of_controls(of_extraction(whole) if whole else []),
    )
    return Content(verdicts, some(*tables))


def as_paper(rows: Sequence[Row]) -> list[Row]:
    """Rows in which f answers with probabilities, as in the paper."""
    return [row for row in rows if row.get("predictions", "probabilities") == "probabilities"]


def _settings(rows: Sequence[Row]) -> Iterator[tuple[list[Row], str, bool]]:
    """Rows, what they have in common, and whether to fold them away: all but the first."""
    kinds = sorted(distinct(rows, "architecture"), key=lambda kind: (kind != "known", str(kind)))
    for said in ("probabilities", "labels"):
        for kind in kinds:
            mine = pick(rows, architecture=kind)
            mine = [row for row in mine if row.get("predictions", "probabilities") == said]
            words = ", f names its class alone" if said == "labels" else ""
            first = said == "probabilities" and kind == kinds[0]
            yield mine, f"{kind} architecture{words}", not first


def _by_queries(rows: Sequence[Row], setting: str, folded: bool) -> Table | None:
    """The naive attacker of the paper."""
    counts = sorted(distinct(rows, "queries"))
    kind = setting.split(maxsplit=1)[0]
    lines, seen = [], []
    for name in names_of(rows):
        mine = pick(rows, dataset=name)
        every: list[Source] = [("none", None), *sources(mine)]
        for source in dict.fromkeys(every):
            cells = []
            for count in counts:
                here = base(mine, source, queries=count) if source[0] == "none" else of(
                    mine, source, attacker="naive", queries=count)  # fmt: skip
                mean = average(here, "accuracy")
                seen += [mean] if mean else []
                value = _printed(name, source, kind, count) if mean and "," not in setting else ""
                cells.append(ACCURACY.cell(mean, value, not printed.same_data(name)))
            if any(cell.text for cell in cells):
                lines.append((Cell(dataset_name(name)), Cell(source_name(source)), *cells))
    if not lines:
        return None
    return Table(
        f"Table 4 of the paper: accuracy of the extracted model, %, {setting}, for an attacker who "
        "believes what he is told",
        ("dataset", "counterfactuals by", *(f"{count:g} queries" for count in counts)),
        tuple(lines),
        ("The paper prints one number for predictions alone.", *repeats_note(seen)),
        folded,
        2,
    ).without_empty_columns()


def _printed(dataset: str, source: Source, kind: str, count: int) -> str:
    column = PRINTED.get(source[0], "")
    there = column != "dpc" or source[1] == 0.025
    return printed.extraction(dataset, column, kind, count) if there else ""


def _by_attacker(rows: Sequence[Row], setting: str, folded: bool, measure: Measure) -> Table | None:
    """All attackers at the largest number of queries of each defence."""
    attackers = [a for a in (*BASES, *ATTACKERS) if a in distinct(rows, "attacker")]
    lines, seen = [], []
    for name in names_of(rows):
        mine = pick(rows, dataset=name)
        for source in sources(mine):
            count = largest(of(mine, source))
            means = [
                average(
                    base(mine, source, attacker, queries=count)
                    if attacker in BASES
                    else of(mine, source, attacker=attacker, queries=count),
                    measure.column,
                )
                for attacker in attackers
            ]
            if any(means):
                seen += [mean for mean in means if mean]
                head = (dataset_name(name), source_name(source), f"{count or 0:g}")
                lines.append((*map(Cell, head), *(measure.cell(mean) for mean in means)))
    if not lines:
        return None
    note = "Compare *relabel*, *dualcf* and *averaging* with base-2n: they ask 2n questions."
    return Table(
        f"Every attacker: {measure.name}, {setting}",
        ("dataset", "counterfactuals by", "n", *attackers),
        tuple(lines),
        (note, *repeats_note(seen)),
        folded or measure is EVENLY,
        2,
    ).without_empty_columns()
