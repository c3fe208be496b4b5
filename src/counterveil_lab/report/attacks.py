"""What stored rows say about attacks: claims of the paper and of ours, controls, and tables.

The strongest attacker on each defence is picked in `counterveil_lab.attacks`. The tables are shown
in the report and quoted in docs/red-team.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from operator import lt
from typing import Any

import pandas as pd

from counterveil_lab.attacks import controls
from counterveil_lab.attacks.defences import MECHANISMS
from counterveil_lab.attacks.headlines import (
    CASE,
    HIGHEST,
    LOWEST,
    attribute_table,
    both_ways,
    linked,
)
from counterveil_lab.attacks.verdicts import gained, headline, members_score
from counterveil_lab.report import frames
from counterveil_lab.report.claims import Claim, Deciders, Outcome, Outcomes, Side, compare
from counterveil_lab.report.frames import THRESHOLDS, place_in, select, with_values
from counterveil_lab.report.pivots import Table, table_of_texts
from counterveil_lab.results import Row

CONTROLS = ("none", "disjoint", "overfitted", "memoriser")
# Columns that rows of the three kinds of attack have.
STOLEN = ("dataset", "defence", "attacker", "architecture", "predictions", "queries", "fidelity")
SCORED = ("dataset", "control", "defence", "target", "attack", "auc", "auc_second", "seed")
GUESSED = ("dataset", "control", "defence", "target", "who", "value", "advantage", "imputation")


def _case(line: Row) -> str:
    known = line["epsilon"] is not None and line["epsilon"] > 0
    name = frames.DATASETS.get(line["dataset"], str(line["dataset"]))
    return f"{name}, ε {line['epsilon']:g}" if known else name


def no_gain(frame: pd.DataFrame, *, defence: str, said: str, column: str = "fidelity") -> Outcomes:
    """A defence is worth what it is worth against the attacker who knows it best.

    That he gains nothing is settled where the interval leaves out a little gain.
    """
    rows = select(frame, defence=defence, predictions=said)
    outcomes = {}
    for line in headline(rows, column) if len(rows) else []:
        if gained(line) is not None:  # a single seed settles nothing
            most = line["gain"] + (line["half_width"] or 0)
            words = f"{line['attacker']}, {line['queries']} queries: {100 * line['gain']:+.1f}"
            if line["unseen"] is not None:
                most = line["unseen"] + line["unseen_half_width"]
                more, half = (100 * line[name] for name in ("unseen", "unseen_half_width"))
                words += f", picked on other seeds {more:+.1f} ± {half:.1f}"
            settled = bool(gained(line)) or most < THRESHOLDS["little"]
            outcomes[_case(line)] = Outcome(not gained(line), words, settled)
    return outcomes


def control_claim(name: str) -> Claim:
    """A control of the attacks: where it fails, the numbers beside it mean little."""
    find, needs, about = FINDERS[name]

    def decide(frame: pd.DataFrame) -> Outcomes:
        rows = select(frame, **about)
        found = [it for it in find(rows) if it.control == name] if len(rows) else []
        return {it.place: Outcome(it.held, it.numbers, it.settled) for it in found}

    text = f"Control: {controls.MUST[name]}"
    return Claim(text, controls.RULES[name], decide, cases="cases", needs=needs)


PLACED = ("dataset", "control", "defence")
POISON = [name for name in MECHANISMS if name.startswith("random-labels")]
# How the controls are found, the columns that this needs, and the rows that each is about.
FINDERS: Mapping[str, tuple[Callable[..., Any], Sequence[str], Mapping[str, Any]]] = {
    "disjoint": (controls.of_inference, PLACED, {"control": "disjoint"}),
    "overfitted": (controls.of_inference, PLACED, {"control": "overfitted"}),
    "dice-kdtree": (controls.of_inference, PLACED, {"attack": "linkage"}),
    "functional": (controls.of_inference, PLACED, {"attack": "linkage"}),
    "relabel": (controls.of_extraction, (*STOLEN, "extra_queries"), {}),
    "random-labels": (controls.of_extraction, (*STOLEN, "extra_queries"), {"defence": POISON}),
    "memoriser": (controls.of_attribute, GUESSED, {"control": "memoriser"}),
}


def at_chance(frame: pd.DataFrame, *, defence: str) -> Outcomes:
    """Whether the strongest attack on the counterfactuals themselves is guessing.

    It is not where the interval leaves out 0.5, on either side. It is where the interval holds 0.5
    and nothing that is far from it. The attacks with the highest and with the lowest AUC are cases
    of their own.
    """
    outcomes = {}
    rows = select(frame, target="cf", control="none", defence=defence)
    for it in both_ways(rows) if len(rows) else ():
        low, high = it["auc_low"], it["auc_high"]
        held, far = low <= 0.5 <= high, max(0.5 - low, high - 0.5)
        words = f"AUC {it['auc']:.3f} [{low:.3f}, {high:.3f}], {it['attack']}"
        words += "" if held else f", {members_score(it['auc'])}"
        case = _case(it) + (", lowest" if it["end"] == LOWEST else "")
        outcomes[case] = Outcome(held, words, not held or far <= THRESHOLDS["near_chance"])
    return outcomes


def no_attribute(frame: pd.DataFrame) -> Outcomes:
    """Whether members lose nothing by f' beyond what their other values tell.

    That is settled where the interval leaves out a little loss.
    """
    return {
        f"{_case(it)}, `{it['defence']}`, {it['target']}": Outcome(
            it["advantage_low"] <= 0,
            f"{100 * it['advantage']:+.1f} points "
            f"[{100 * it['advantage_low']:+.1f}, {100 * it['advantage_high']:+.1f}]",
            it["advantage_low"] > 0 or it["advantage_high"] < THRESHOLDS["little"],
        )
        for it in attribute_table(frame)
        if (it["control"], it["who"]) == ("none", "members") and it["target"] != "f"
    }


def surrogate_gives_less(frame: pd.DataFrame) -> Outcomes:
    """What the best thief gains by guidance `surrogate` against guidance `model`."""
    gains: dict[str, dict[str, Side]] = {"model": {}, "surrogate": {}}
    for it in headline(frame, apart=("guidance", "margin")):
        case = f"{_case(it)}, {it['predictions']}, margin {it['margin']:g}"
        half = nan if it["half_width"] is None else it["half_width"]
        said = f"{_points(it, 'gain', 'half_width')} points"
        mean = frames.Mean(it["gain"], it["gain"] - half, it["gain"] + half, said=said)
        gains[it["guidance"]][case] = Side(mean, {})
    return compare(gains["surrogate"], gains["model"], lt)


def defences(frame: pd.DataFrame) -> Table | None:
    rows = with_values(frame, ("defence",))
    found = set(rows.defence) | {"none"} if len(rows) else set()
    lines = [(f"`{name}`", words) for name, words in frames.DEFENCES.items() if name in found]
    return table_of_texts("Where counterfactuals come from", ("name", "what it is"), lines)


def extraction(frame: pd.DataFrame) -> Table | None:
    """What the strongest thief gains on every defence, in points of fidelity."""
    rows = with_values(frame, (*STOLEN, "extra_queries"))
    lines = headline(rows) if len(rows) else []
    by_case: dict[tuple[str, str], dict[str, Row]] = {}
    for line in sorted(lines, key=_place):
        by_case.setdefault((line["dataset"], _defence(line)), {})[line["predictions"]] = line
    texts = []
    for (dataset, defence), both in by_case.items():
        if len(both) == 2:
            labels, proba = both["labels"], both["probabilities"]
            way = f"{labels['attacker']}, {labels['queries']}"
            seeds = str(labels["seeds"])
            texts.append([dataset, defence, seeds, *_gain(labels), way, *_gain(proba)])
    gain = ("gain, points", "picked on other seeds")
    heads = ["dataset", "counterfactuals", "seeds", "class alone: base, %", *gain]
    heads += ["strongest", "probabilities: base, %", *gain]
    return table_of_texts("What the strongest attacker gains", heads, texts, 2)


def _gain(line: Row) -> list[str]:
    picked_elsewhere = _points(line, "unseen", "unseen_half_width")
    return [f"{100 * line['base']:.1f}", _points(line, "gain", "half_width"), picked_elsewhere]


def tradeoff(frame: pd.DataFrame) -> Table | None:
    texts, settings = [], ["guidance", "margin"]
    rows = with_values(frame, (*STOLEN, *settings))
    lines = headline(rows, apart=settings) if len(rows) else []
    found = {(it["guidance"], it["margin"], it["predictions"]): it for it in lines}
    for (guidance, margin), part in rows.groupby(settings, sort=False):
        both = [found.get((guidance, margin, said)) for said in ("labels", "probabilities")]
        gains = [_points(line, "gain", "half_width") if line else "" for line in both]
        worth = part[["flip_ratio", "distance"]].mean()
        useful = (f"{worth.flip_ratio:.3f}", f"{worth.distance:.2f}")
        texts.append([f"`{guidance}`", f"{margin:g}", *useful, *gains])
    gains = ["gain from classes, points", "gain from probabilities, points"]
    heads = ["guidance", "margin", "flip ratio", "distance", *gains]
    return table_of_texts("Usefulness and theft", heads, texts, 2)


def membership(frame: pd.DataFrame) -> Table | None:
    """The strongest attack on f, on f' and on counterfactuals; linkage beside.

    The attack with the lowest AUC stands beside it where its interval lies below 0.5.
    """
    scored = with_values(frame, SCORED)
    rows = with_values(frame, ("control", "attack", "counterfactuals"))
    lines = both_ways(scored) if len(scored) else []
    low = {_cased(it): it for it in lines if it["end"] == LOWEST}
    cells = []
    for line in (it for it in lines if it["end"] == HIGHEST):
        text, lowest = _interval(line, "auc", ".3f"), low.get(_cased(line))
        if lowest and lowest["auc_high"] < 0.5:
            text += f"; lowest {_interval(lowest, 'auc', '.3f')}"
        cells.append((line, line["target"], text))
    for line in linked(rows):
        cells.append((line, "linkage", _interval(line, "exact_excess", "+.1f", 100)))
    ways = {"f": "f", "f'": "f'", "cf": "counterfactuals themselves", "linkage": "linkage, points"}
    return _by_defence("Strongest attacks, AUC, and linkage", cells, ways)


def attributes(frame: pd.DataFrame) -> Table | None:
    """What a model gives away beyond imputation: of members, and of people it never saw."""
    cells = [
        (line, f"{line['target']}, {line['who']}", _interval(line, "advantage", "+.1f", 100))
        for line in attribute_table(with_values(frame, GUESSED))
    ]
    ways = {
        f"{target}, {who}": f"{target}, {'members' if who == 'members' else 'others'}"
        for target in ("f", "f'", "f' relabel")
        for who in ("members", "outsiders")
    }
    return _by_defence("Balanced accuracy beyond imputation, points", cells, ways)


def _by_defence(
    title: str, cells: Iterable[tuple[Row, str, str]], ways: Mapping[str, str]
) -> Table:
    """A line for each dataset, control and defence, a column for each of `ways`."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for line, way, text in sorted(cells, key=lambda cell: _place(cell[0])):
        control = "" if line["control"] == "none" else line["control"]
        found.setdefault((line["dataset"], control, _defence(line)), {})[way] = text
    rows = [[*key, *(texts.get(way, "") for way in ways)] for key, texts in found.items()]
    return table_of_texts(title, ("dataset", "control", "counterfactuals", *ways.values()), rows, 3)


def _cased(line: Row) -> tuple[str, ...]:
    return tuple(str(line[name]) for name in CASE)


def _place(line: Row) -> tuple[float, ...]:
    """Where a line comes: by dataset, control, defence and ε."""
    named = ((frames.DATASETS, line["dataset"]), (CONTROLS, line.get("control", "none")))
    places = [place_in(*each) for each in (*named, (frames.DEFENCES, line["defence"]))]
    return (*places, line["epsilon"] or -1)


def _defence(line: Row) -> str:
    known = line["epsilon"] is not None and line["epsilon"] > 0
    return f"`{line['defence']}`" + (f", ε {line['epsilon']:g}" if known else "")


def _points(line: Row, value: str, half: str) -> str:
    if line[value] is None:
        return ""
    sure = "" if line[half] is None else f" ± {100 * line[half]:.1f}"
    return f"{100 * line[value]:+.1f}{sure}"


def _interval(line: Row, name: str, style: str, scale: float = 1) -> str:
    value, low, high = (format(scale * line[name + end], style) for end in ("", "_low", "_high"))
    return f"{value} [{low}, {high}]"


DECIDERS: Deciders = {
    "no_gain": (no_gain, (*STOLEN, "extra_queries", "flip_ratio")),
    "at_chance": (at_chance, SCORED),
    "no_attribute": (no_attribute, GUESSED),
    "surrogate_gives_less": (surrogate_gives_less, (*STOLEN, "guidance", "margin")),
}
TABLES = {
    "defences": defences,
    "extraction": extraction,
    "tradeoff": tradeoff,
    "membership": membership,
    "attributes": attributes,
}
