"""Whether the controls came out as they must; if one did not, the numbers beside it mean little."""

from math import isnan
from typing import Any, NamedTuple

import pandas as pd

from counterveil_lab.attacks.headlines import (
    HIGHEST,
    LOWEST,
    attribute_table,
    both_ways,
    linked,
    place_of,
)
from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.attacks.verdicts import DEFENCE, NONE, Rows, gains

MUST = {
    "disjoint": "people who were never trained on are not taken for members",
    "overfitted": "where f knows its rows by heart, attacks on f find the members",
    "memoriser": "the attribute is inferred from a model that remembers",
    "dice-kdtree": "linkage finds the training rows that dice-ml's k-d tree hands out",
    "functional": "linkage finds no more members than others among answers of `functional`",
    "relabel": "true labels put no copy below predictions alone",
    "random-labels": "random labels put the naive attacker below predictions alone",
}
RULES = {
    "disjoint": "the interval of the strongest attack holds .5, or its AUC is within .01 of it; so "
    "does that of the attack with the lowest AUC",
    "overfitted": "the interval of the strongest attack on f lies above .5",
    "memoriser": "the interval of what members lose beyond imputation lies above 0",
    "dice-kdtree": "the interval of the excess of exact rows lies above 0",
    "functional": "no interval of the excess of exact or nearly exact rows lies above 0",
    "relabel": "at the largest number of queries the copy does not disagree with f more often than "
    "that of as few predictions, by more than a quarter and by more than the interval",
    "random-labels": "at every number of queries the interval of the change lies below 0; not "
    "settled where one holds 0 and none lies above it",
}
SLACK = 0.01  # of AUC, and of the fidelity of a single seed: less is noise
QUARTER = 0.25  # of the disagreement of the base


class Outcome(NamedTuple):
    """How a control of `MUST` came out in one place; not settled: intervals hold both outcomes."""

    control: str
    place: str
    held: bool
    numbers: str
    settled: bool = True


def of_inference(rows: Rows) -> list[Outcome]:
    """Controls of membership and linkage among stored rows."""
    outcomes = []
    for line in both_ways(rows):
        place = f"{line['dataset']}, {line['defence']}, {line['target']}"
        place += ", lowest" if line["end"] == LOWEST else ""
        low, high = line["auc_low"], line["auc_high"]
        told = f"AUC {line['auc']:.3f} [{low:.3f}, {high:.3f}]"
        if line["control"] == "disjoint":
            chance = low <= 0.5 <= high or abs(line["auc"] - 0.5) <= SLACK
            outcomes.append(Outcome("disjoint", place, chance, told))
        if (line["control"], line["target"], line["end"]) == ("overfitted", "f", HIGHEST):
            outcomes.append(Outcome("overfitted", place, low > 0.5, told))
    for line in linked(rows):
        place = place_of(line)
        told = f"excess {line['exact_excess']:+.3f}, nearly {line['near_excess']:+.3f}"
        if line["defence"] == "dice-kdtree":
            outcomes.append(Outcome("dice-kdtree", place, line["exact_excess_low"] > 0, told))
        if line["defence"].startswith("functional"):
            found = line["exact_excess_low"] > 0 or line["near_excess_low"] > 0
            outcomes.append(Outcome("functional", place, not found, told))
    return outcomes


def of_attribute(rows: Rows) -> list[Outcome]:
    """The memoriser has to give the attribute away."""
    return [
        Outcome("memoriser", x["dataset"], x["advantage_low"] > 0, f"{x['advantage']:+.3f}")
        for x in attribute_table(rows)
        if (x["control"], x["who"]) == ("memoriser", "members")
    ]


def of_extraction(rows: Rows) -> list[Outcome]:
    """Controls of extraction: poison must harm who believes it, and nobody who relabels."""
    outcomes = []
    for (dataset, defence, epsilon, predictions, architecture), group in _fidelities(rows).items():
        place = f"{dataset}, {defence}" + ("" if epsilon == NONE else f" at ε {epsilon:g}")
        place += f", {predictions}, {architecture} architecture"
        most = group[group.queries == group.queries.max()]
        if most.relabel.notna().any():
            allowed = QUARTER * (1 - float(most["drop"].mean()))
            mean, _, high = _beyond_base(most, "relabel")
            harmed = mean < -allowed and (mean < -SLACK if isnan(high) else high < 0)
            outcomes.append(Outcome("relabel", place, not harmed, _told(mean, high)))
        if str(defence).startswith("random-labels"):
            ways = [_beyond_base(each, "naive") for _, each in group.groupby("queries")]
            mean, _, high = max(ways, key=lambda way: way[0] if isnan(way[2]) else way[2])
            harmed = all((m if isnan(h) else h) < 0 for m, _, h in ways)
            helped = any((m if isnan(low) else low) >= 0 for m, low, _ in ways)
            settled, told = harmed or helped, _told(mean, high)
            outcomes.append(Outcome("random-labels", place, harmed, told, settled))
    return outcomes


def _fidelities(rows: Rows) -> dict[tuple[Any, ...], pd.DataFrame]:
    """For each defence and architecture the fidelity of three attackers, by queries and seed."""
    played, keys = gains(rows), [*DEFENCE, "architecture"]
    wide = played.pivot_table(
        index=[*keys, "queries", "seed"], columns="attacker", values="fidelity"
    ).reindex(columns=["drop", "relabel", "naive"])
    found = dict(iter(wide.reset_index(["queries", "seed"]).groupby(level=keys)))
    order = played[keys].drop_duplicates().itertuples(index=False, name=None)
    return {key: found[key] for key in order}


def _beyond_base(group: pd.DataFrame, attacker: str) -> tuple[float, float, float]:
    """Fidelity of an attacker less that of n predictions alone, seed by seed, with its interval."""
    return seeds_interval((group[attacker] - group["drop"]).dropna().tolist())


def _told(mean: float, high: float) -> str:
    return f"{mean:+.4f}" + ("" if isnan(high) else f" ± {high - mean:.4f}")
