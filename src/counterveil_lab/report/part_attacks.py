"""The section on model extraction: Table 4, and attackers who know of the defence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from counterveil_lab.attacks.controls import MUST, RULES, Outcome, of_extraction
from counterveil_lab.attacks.verdicts import gained, headline
from counterveil_lab.report import paper_values as printed
from counterveil_lab.report.blocks import Cell, Content, Table, Verdict
from counterveil_lab.report.numbers import (
    Mean,
    average,
    distinct,
    epsilon_of,
    mean_of,
    number,
    pick,
)  # fmt: skip
from counterveil_lab.report.rules import tally
from counterveil_lab.report.tables import Measure, repeats_note, some
from counterveil_lab.report.ways import dataset_name, in_order
from counterveil_lab.results import Row

DEFENCES = {
    "none": "predictions alone",
    "dice-gradient": "DiCE, gradient",
    "dice-kdtree": "DiCE, nearest training rows",
    "no-noise": "no noise",
    "no-noise-published": "no noise, published search",
    "paper": "`paper`",
    "functional-model": "`functional`, guidance `model`",
    "functional-surrogate": "`functional`, guidance `surrogate`",
    "elsewhere-surrogate": "control: a veil of people f never saw, guidance `surrogate`",
    "random-labels": "control: classes at random",
    "random-labels-surrogate": "control: classes at random, guidance `surrogate`",
    "dp-model": "f itself by DP-SGD",
    "cf-k": "CF-K",
}
JUDGED = ("paper", "functional-model", "functional-surrogate")
NON_DP = ("dice-gradient", "no-noise")  # the paper's reference is DiCE
PRINTED = {"none": "base", "dice-gradient": "non-dp", "paper": "dpc", "functional-model": "dpc"}
BASES = ("base-n", "base-2n")
TWICE = ("base-2n", "relabel", "relabel-cca", "dualcf", "averaging")  # who ask 2n questions
ATTACKERS = ("drop", "naive", "robust", "cca", *TWICE[1:])
ACCURACY = Measure("accuracy", "accuracy, %", 1, "", 100.0)
FIDELITY = Measure("fidelity", "agreement with f, %", 1, "", 100.0)
EVENLY = Measure("fidelity_uniform", "agreement with f on legal rows drawn evenly, %", 1, "", 100.0)
NEEDED = {"dataset", "epsilon", "seed", "attacker", "architecture", "queries", "extra_queries",
          "fidelity", "flip_ratio"}  # fmt: skip
Source = tuple[str, float | None]  # a defence and its ε


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


def names_of(rows: Sequence[Row]) -> list[str]:
    """Datasets in the paper's order."""
    return in_order(str(name) for name in distinct(rows, "dataset"))


def sources(rows: Iterable[Row], defence: str | None = None) -> list[Source]:
    """Defences with their ε, in the order of `DEFENCES`."""
    order = list(DEFENCES)
    found = {(str(row["defence"]), epsilon_of(row)) for row in rows if row.get("defence")}
    return sorted(
        (one for one in found if defence in {None, one[0]}),
        key=lambda one: (order.index(one[0]) if one[0] in order else 99, one[0], one[1] or 0),
    )


def source_name(source: Source) -> str:
    """A defence for people."""
    name, epsilon = source
    return DEFENCES.get(name, name) + ("" if epsilon is None else f", ε {epsilon:g}")


def of(rows: Iterable[Row], source: Source, **more: object) -> list[Row]:
    """The rows of one defence at one ε."""
    return pick(rows, defence=source[0], epsilon=source[1], **more)


def base(
    rows: Sequence[Row], source: Source, attacker: str = "base-n", **more: object
) -> list[Row]:
    """Predictions alone: measured beside a defence or, where they were not, beside the others.

    With dp-model f is another, and so is its base.
    """
    own = of(rows, source, attacker=attacker, **more)
    others = pick(rows, attacker=attacker, **more)
    return own or [row for row in others if row.get("defence") != "dp-model"]


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


def largest(rows: Sequence[Row]) -> float | None:
    """The largest number of queries."""
    return max((c for row in rows if (c := number(row.get("queries"))) is not None), default=None)


def helps_without_privacy(rows: Sequence[Row]) -> Verdict:
    """`non-DP counterfactuals can generally help improve the accuracy of surrogate f'`."""
    outcomes = {}
    for name in names_of(rows):
        mine = pick(rows, dataset=name)
        found = [(s, c) for d in NON_DP for s in sources(mine, d) if (c := _naive(mine, s))]
        if found:
            source, (ours, without, more) = found[0]
            words = f"{source_name(source)}: {against(ours, without, more)}"
            outcomes[name] = (more.value > 0, words)
    return tally(
        "Counterfactuals without privacy help the naive attacker",
        outcomes,
        "mean accuracy above that of predictions alone at the largest number of queries (DiCE, or "
        "the search without noise where DiCE was not run)",
        whose="paper",
    )


def _naive(rows: Sequence[Row], source: Source) -> tuple[Mean, Mean, Mean] | None:
    """The naive attacker's accuracy, that of predictions alone, and the difference."""
    mine = of(rows, source, attacker="naive")
    count = largest(mine)
    return paired(pick(mine, queries=count), base(rows, source, queries=count))


def paired(rows: Sequence[Row], others: Sequence[Row]) -> tuple[Mean, Mean, Mean] | None:
    """Two mean accuracies, and the mean of their difference seed by seed, for f differs with it."""
    here, there = ({row.get("seed"): value for row in each
                    if (value := number(row.get("accuracy"))) is not None}
                   for each in (rows, others))  # fmt: skip
    ours, without = mean_of(list(here.values())), mean_of(list(there.values()))
    more = mean_of([here[seed] - there[seed] for seed in here if seed in there])
    return (ours, without, more) if ours and without and more else None


def cases(rows: Sequence[Row], defence: str) -> Iterator[tuple[str, list[Row], Source]]:
    """A dataset and an ε at a time, with a name."""
    for name in names_of(rows):
        mine = pick(rows, dataset=name)
        for source in sources(mine, defence):
            epsilon = "" if source[1] is None else f", ε {source[1]:g}"
            yield f"{dataset_name(name)}{epsilon}", mine, source


def below_base(rows: Sequence[Row], defence: str, whose: str = "ours") -> Verdict:
    """`DPC can effectively reduce the accuracy of surrogate f'`."""
    outcomes = {}
    for case, mine, source in cases(rows, defence):
        if both := _naive(mine, source):
            ours, without, more = both
            outcomes[case] = (more.value < 0, against(ours, without, more))
    return tally(
        f"{DEFENCES.get(defence, defence)}: the naive attacker ends below predictions alone",
        outcomes,
        "mean accuracy below that of predictions alone at the largest number of queries",
        whose=whose,
        unit="cases",
    )


def stronger_with_queries(rows: Sequence[Row]) -> Verdict:
    """`such protection becomes stronger as the number of involved DPC samples increases`."""
    outcomes = {}
    for case, rows_of, source in cases(rows, "paper"):
        mine = of(rows_of, source, attacker="naive")
        counts = sorted(c for c in distinct(mine, "queries") if number(c) is not None)
        ends = [pick(mine, queries=c) for c in (counts[-1:] + counts[:1])]
        if len(counts) > 1 and (both := paired(*ends)):
            many, few, more = both
            words = f"{percent(few)} at {counts[0]}, {percent(many)} at {counts[-1]}"
            outcomes[case] = (more.value < 0, words + more.unsettled)
    return tally(
        "`paper`: the more counterfactuals, the worse the naive attacker's model",
        outcomes,
        "mean accuracy at the largest number of queries below that at the smallest",
        whose="paper",
        unit="cases",
    )


def of_controls(outcomes: Sequence[Outcome]) -> tuple[Verdict, ...]:
    """A verdict for each control that was played."""
    return tuple(
        tally(
            f"Control: {words}",
            {each.place: (each.held, each.numbers) for each in outcomes if each.control == control},
            RULES[control],
            unit="cases",
        )
        for control, words in MUST.items()
        if any(each.control == control for each in outcomes)
    )


def no_gain(
    rows: Sequence[Row], defence: str, said: str = "probabilities", column: str = FIDELITY.column
) -> Verdict:
    """A defence is worth what it is worth against the attacker who knows it best."""
    outcomes = {}
    where = "test rows" if column == FIDELITY.column else "legal rows drawn evenly"
    mine = [row for row in pick(rows, defence=defence, predictions=said) if row.keys() >= NEEDED]
    for line in headline(mine, column).table if mine else []:
        if gained(line) is None:  # a single seed settles nothing
            continue
        epsilon = "" if line["epsilon"] is None else f", ε {line['epsilon']:g}"
        words = f"best is *{line['attacker']}* with {line['queries']} queries, "
        words += f"{100 * line['gain']:+.1f} points"
        if line["unseen"] is not None:
            words += ", picked on other seeds {:+.1f} ± {:.1f}".format(
                *(100 * line[name] for name in ("unseen", "unseen_half_width"))
            )
        outcomes[f"{dataset_name(line['dataset'])}{epsilon}"] = (not gained(line), words)
    return tally(
        f"{DEFENCES.get(defence, defence)}, f answers with {said}: no attacker gains agreement "
        f"with f on {where} over predictions alone",
        outcomes,
        "agreement with f of the strongest attacker, picked on other seeds than those he is scored "
        "on, is not above that of as many predictions alone by more than the interval over seeds",
        unit="cases",
    )


def against(ours: Mean, without: Mean, more: Mean) -> str:
    """Two shares in a sentence, and whether the seeds settle their difference."""
    return f"{percent(ours)} against {percent(without)}{more.unsettled}"


def percent(mean: Mean) -> str:
    """A share in sentences."""
    return "{} {} %".format(*mean.texts(1, 100.0)).replace("  ", " ")
