"""Sections on the answers: flip ratio, distance, over ε, beside other methods and the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from counterveil_lab.report import paper_values as printed
from counterveil_lab.report.blocks import Content, Verdict
from counterveil_lab.report.numbers import (
    Mean,
    average,
    distinct,
    epsilon_of,
    pick,
    word,
)
from counterveil_lab.report.part_noise import epochs_note
from counterveil_lab.report.rules import CLOSE, tally
from counterveil_lab.report.tables import (
    CHANGED,
    DISTANCE,
    FLIP,
    LEGAL,
    MILLISECONDS,
    PLAUSIBILITY,
    SPECIFIED,
    Measure,
    by_case,
    grid,
    some,
)
from counterveil_lab.report.ways import PEERS, Way, dataset_name, in_order, way_of
from counterveil_lab.results import Row

EPSILONS = (0.025, 0.75)
FEW_ANSWERS = "Best values are marked among methods that answer at least 95 % of the queries."
AS_SAID = "on the datasets that are the paper's"


def of(rows: Sequence[Row], dataset: str, column: str, **way: object) -> Mean | None:
    """The mean of one cell."""
    return average(pick(rows, dataset=dataset, **way), column)


def datasets(rows: Sequence[Row]) -> list[str]:
    """Those of the rows, in the paper's order."""
    return in_order(str(name) for name in distinct(rows, "dataset"))


def flip_ratios(rows: Sequence[Row]) -> Content:
    """Table 2."""
    notes = epochs_note(rows)
    tables = some(
        grid(rows, FLIP, "Table 2 of the paper: flip ratio, any other class",
             printed=_flip(specified=False), notes=notes),
        grid(rows, SPECIFIED, "Table 2 of the paper: flip ratio, a class drawn at random",
             printed=_flip(specified=True), notes=notes),
        grid(rows, DISTANCE, "Distance of the same answers", notes=(FEW_ANSWERS,), folded=True),
        grid(rows, PLAUSIBILITY, "Distance of the same answers to the nearest held-out record",
             notes=(FEW_ANSWERS,), folded=True),
        grid(rows, CHANGED, "Changed features of the same answers", folded=True),
        grid(rows, LEGAL, "Share of the same answers that are legal rows", folded=True),
        grid(rows, MILLISECONDS, "Milliseconds a query, one core", folded=True),
    )  # fmt: skip
    verdicts = (
        more_noise_flips_less(rows),
        specified_above_peers(rows, "paper", whose="paper"),
        most_peers_beaten(rows),
        at_or_above_printed(rows),
        not_below_paper(rows),
        specified_above_peers(rows, "functional"),
        all_legal(rows),
    )
    return Content(verdicts, tables)


def _flip(*, specified: bool) -> Callable[[Way, str], str]:
    return lambda way, name: printed.flip(way.printed_as, name, specified)


def at_or_above_printed(rows: Sequence[Row]) -> Verdict:
    """`functional` with guidance `model` against the printed DPC columns."""
    outcomes, aside = {}, []
    for name, epsilon, specified in _cells(rows):
        column = "flip_ratio_specified" if specified else "flip_ratio"
        mean = of(rows, name, column, mechanism="functional", guidance="model", epsilon=epsilon)
        value = printed.flip(f"dpc-{epsilon:g}", name, specified)
        if mean is None or not value:
            continue
        case = f"{dataset_name(name)}, ε {epsilon:g}{', specified' if specified else ''}"
        if printed.same_data(name):
            good = round(mean.value, 3) >= float(value)
            outcomes[case] = (good, mean.against(value))
        elif dataset_name(name) not in aside:
            aside.append(dataset_name(name))
    words = f"{', '.join(aside)}: other data than printed, not counted" if aside else ""
    return tally(
        "`functional` is at or above the paper's printed DPC columns",
        outcomes,
        f"mean flip ratio, to three places, at or above the printed one, {AS_SAID}",
        unit="columns",
        aside=words,
    )


def _cells(rows: Sequence[Row]) -> Iterator[tuple[str, float, bool]]:
    for name in datasets(rows):
        for epsilon in EPSILONS:
            for specified in (False, True):
                yield name, epsilon, specified


def not_below_paper(rows: Sequence[Row]) -> Verdict:
    """`functional` against `paper`, both measured here."""
    outcomes = {}
    for name, epsilon, specified in _cells(rows):
        column = "flip_ratio_specified" if specified else "flip_ratio"
        ours, theirs = (
            of(rows, name, column, mechanism=which, guidance="model", epsilon=epsilon)
            for which in ("functional", "paper")
        )
        if ours and theirs:
            case = f"{dataset_name(name)}, ε {epsilon:g}{', specified' if specified else ''}"
            good = ours.value >= theirs.value - CLOSE
            unsettled = "" if ours.value == theirs.value else ours.overlaps(theirs)
            outcomes[case] = (good, f"{ours.text} against {theirs.text}{unsettled}")
    return tally(
        "`functional` is not below `paper` measured here",
        outcomes,
        f"mean flip ratio at the same ε lower by at most {CLOSE:g}",
        unit="columns",
    )


def more_noise_flips_less(rows: Sequence[Row]) -> Verdict:
    """The paper's two DPC columns, as measured here."""
    outcomes = {}
    for name in datasets(rows):
        few, many = (
            of(rows, name, "flip_ratio", mechanism="paper", guidance="model", epsilon=epsilon)
            for epsilon in EPSILONS
        )
        if few and many:
            good = many.value >= few.value
            words = f"{few.text} at ε 0.025, {many.text} at 0.75{few.overlaps(many)}"
            outcomes[name] = (good, words)
    return tally(
        "`paper` flips at least as many queries at ε 0.75 as at ε 0.025",
        outcomes,
        "mean flip ratio at ε 0.75 at or above that at ε 0.025",
        whose="paper",
    )


def specified_above_peers(rows: Sequence[Row], mechanism: str, whose: str = "ours") -> Verdict:
    """With a class asked for, DPC starts from its prototype and others do not."""
    outcomes = {}
    for name in datasets(rows):
        ours = of(rows, name, "flip_ratio_specified", mechanism=mechanism, guidance="model",
                  epsilon=0.025)  # fmt: skip
        peers = {peer: of(rows, name, "flip_ratio_specified", method=peer) for peer in PEERS}
        best = max(((m.value, peer) for peer, m in peers.items() if m), default=None)
        if ours and best:
            words = f"{ours.text} against {best[0]:.3f} of {PEERS[best[1]]}"
            outcomes[name] = (ours.value > best[0], words)
    return tally(
        f"`{mechanism}` at ε 0.025 reaches a specified class more often than every other method",
        outcomes,
        "mean flip ratio for a class drawn at random above that of every method measured",
        whose=whose,
    )


def most_peers_beaten(rows: Sequence[Row]) -> Verdict:
    """`When DP budget is sufficient DPC can even outperform most of the baselines`."""
    outcomes = {}
    for name in datasets(rows):
        ours = of(rows, name, "flip_ratio", mechanism="paper", guidance="model", epsilon=0.75)
        peers = [m for peer in PEERS if (m := of(rows, name, "flip_ratio", method=peer))]
        if ours and peers:
            beaten = sum(ours.value > peer.value for peer in peers)
            outcomes[name] = (2 * beaten > len(peers), f"{beaten} of {len(peers)} methods below")
    return tally(
        "`paper` at ε 0.75 flips more than most other methods",
        outcomes,
        "mean flip ratio above that of more than half of the methods measured",
        whose="paper",
    )


def all_legal(rows: Sequence[Row]) -> Verdict:
    """What leaves the search is a row that the schema accepts."""
    outcomes = {}
    for name in datasets(rows):
        mean = average([row for row in pick(rows, dataset=name) if row.get("mechanism")], "legal")
        if mean:
            outcomes[name] = (mean.value == 1.0, f"{mean.value:.4f}")
    return tally("Every answer of ours is a legal row", outcomes, "share of legal rows exactly 1")


def frontier(rows: Sequence[Row]) -> Content:
    """Answers at each ε with both guidances, by the same search."""
    planned = [row for row in rows if row.get("asked_order") is None]
    order = sorted(planned, key=lambda row: way_of(row).rank)
    order = [row for name in datasets(planned) for row in pick(order, dataset=name)]
    keys = {
        "dataset": lambda row: dataset_name(word(row, "dataset")),
        "mechanism": lambda row: f"`{way_of(row).mechanism}`",
        "ε": lambda row: way_of(row).amount,
        "guarantee": lambda row: way_of(row).level,
    }
    measures = (
        FLIP, SPECIFIED, DISTANCE, PLAUSIBILITY, MILLISECONDS,
        Measure("distance_unpolished", "distance before polish", 2),
        Measure("plausibility_unpolished", "to nearest real record, before polish", 2),
    )  # fmt: skip

    def beside(mine: Sequence[Row], measure: Measure) -> tuple[str, bool]:
        name, way = word(mine[0], "dataset"), way_of(mine[0])
        if measure not in {FLIP, SPECIFIED}:
            return "", False
        return printed.flip(way.printed_as, name, measure is SPECIFIED), not printed.same_data(name)

    model, surrogate = (pick(order, guidance=which) for which in ("model", "surrogate"))
    by_surrogate = Measure("flip_ratio_by_surrogate", "accepted by the surrogate", 3)
    tables = some(
        by_case(model, keys, measures, "Guidance `model`", printed=beside),
        by_case(surrogate, keys, (FLIP, by_surrogate, DISTANCE, PLAUSIBILITY),
                "Guidance `surrogate`",
                notes=("Flip ratio: answers that the target model, asked afterwards, accepts.",)),
    )  # fmt: skip
    verdicts = [at_or_above_printed(planned), surrogate_gains(planned)]
    if pick(planned, mechanism="paper"):
        verdicts.append(not_below_paper(planned))
    return Content(tuple(verdicts), tables)


def surrogate_gains(rows: Sequence[Row]) -> Verdict:
    """What an end-to-end guarantee costs shrinks as ε grows."""
    outcomes = {}
    for name in datasets(rows):
        mine = pick(rows, dataset=name, mechanism="functional", guidance="surrogate")
        found = sorted({e for row in mine if (e := epsilon_of(row)) is not None})
        ends = [average(pick(mine, epsilon=e), "flip_ratio") for e in found[:: len(found) - 1 or 1]]
        if len(found) > 1 and ends[0] and ends[-1]:
            words = f"{ends[0].text} at ε {found[0]:g}, {ends[-1].text} at {found[-1]:g}"
            words += ends[0].overlaps(ends[-1])
            outcomes[name] = (ends[-1].value > ends[0].value, words)
    return tally(
        "`functional` with guidance `surrogate`: more ε flips more",
        outcomes,
        "mean flip ratio at the largest ε above that at the smallest",
    )
