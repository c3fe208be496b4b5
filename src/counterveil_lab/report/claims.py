"""What stored rows decide about copies of a model: the paper's claims, ours, and the controls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from counterveil_lab.attacks.controls import MUST, RULES, Outcome
from counterveil_lab.attacks.verdicts import gained, headline
from counterveil_lab.report.blocks import Verdict
from counterveil_lab.report.defended import (
    DEFENCES,
    Source,
    base,
    largest,
    names_of,
    of,
    source_name,
    sources,
)
from counterveil_lab.report.numbers import Mean, distinct, mean_of, number, pick
from counterveil_lab.report.rules import tally
from counterveil_lab.report.ways import dataset_name
from counterveil_lab.results import Row

NON_DP = ("dice-gradient", "no-noise")  # the paper's reference is DiCE
NEEDED = {"dataset", "epsilon", "seed", "attacker", "architecture", "queries", "extra_queries",
          "fidelity", "flip_ratio"}  # fmt: skip
TEST_ROWS = "fidelity"  # where agreement with f is told of


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
    rows: Sequence[Row], defence: str, said: str = "probabilities", column: str = TEST_ROWS
) -> Verdict:
    """A defence is worth what it is worth against the attacker who knows it best."""
    outcomes = {}
    where = "test rows" if column == TEST_ROWS else "legal rows drawn evenly"
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
