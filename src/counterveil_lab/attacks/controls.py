"""Whether the controls came out as they must; if one did not, the numbers beside it mean little.

| control | must |
|---|---|
| disjoint | no attack tells those called members from the others |
| overfitted | attacks on f succeed |
| memoriser | the attribute is inferred |
| dice-kdtree | linkage finds the training rows that it hands out |
| functional | linkage finds none |
| relabel | true labels do not put a copy below predictions alone |
| random-labels | random labels put the naive attacker below it |
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from counterveil_lab.attacks.headlines import attribute_table, linked, strongest
from counterveil_lab.attacks.verdicts import DEFENCE, NONE, gains
from counterveil_lab.results import Row

SLACK = 0.01  # of AUC or fidelity: less is noise, whatever an interval says
FAILED = "CONTROL FAILED: "
Outcome = tuple[bool, str]


def spoken(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each control that failed, or one that says that all held."""
    failed = [FAILED + words for held, words in outcomes if not held]
    if failed or not outcomes:
        return failed
    return [f"All {len(outcomes)} controls came out as they must."]


def of_inference(rows: Sequence[Row]) -> list[Outcome]:
    """Controls of membership and linkage among stored rows."""
    outcomes = []
    for line in strongest(rows):
        place = f"{line['dataset']}, {line['defence']}, attack on {line['target']}"
        told = f"AUC {line['auc']:.3f} [{line['auc_low']:.3f}, {line['auc_high']:.3f}]"
        if line["control"] == "disjoint":
            chance = line["auc_low"] <= 0.5 <= line["auc_high"] or abs(line["auc"] - 0.5) <= SLACK
            outcomes.append((chance, f"{place}: disjoint rows are not at chance, {told}"))
        if line["control"] == "overfitted" and line["target"] == "f":
            words = f"{place}: an overfitted model is not found out, {told}"
            outcomes.append((line["auc_low"] > 0.5, words))
    for line in linked(rows):
        if line["defence"] == "dice-kdtree":
            words = (
                f"{line['dataset']}, dice-kdtree: linkage does not find the training rows that "
                f"are handed out, excess {line['exact_excess']:+.3f}"
            )
            outcomes.append((line["exact_excess_low"] > 0, words))
        if line["defence"].startswith("functional"):
            words = (
                f"{line['dataset']}, {line['defence']}: training rows are among the "
                f"counterfactuals, excess {line['exact_excess']:+.3f}"
            )
            outcomes.append((not line["exact_excess_low"] > 0, words))
    return outcomes


def of_attribute(rows: Sequence[Row]) -> list[Outcome]:
    """The memoriser has to give the attribute away."""
    return [
        (line["advantage_low"] > 0,
         f"{line['dataset']}: the attribute is not inferred from a memoriser, "
         f"{line['advantage']:+.3f}")
        for line in attribute_table(rows)
        if line["control"] == "memoriser" and line["who"] == "members"
    ]  # fmt: skip


def of_extraction(rows: Sequence[Row]) -> list[Outcome]:
    """Controls of extraction: poison must harm who believes it, and nobody who relabels."""
    outcomes = []
    table = gains(rows)
    for key, group in table.groupby([*DEFENCE, "architecture"], sort=False):
        dataset, defence, epsilon, predictions, architecture = key
        place = f"{dataset}, {defence}" + ("" if epsilon == NONE else f" at ε {epsilon:g}")
        place += f", {predictions}, {architecture} architecture"
        most = group[group.queries == group.queries.max()]
        without = float(most[most.attacker == "drop"].fidelity.mean())  # that of base-n
        relabelled = float(most[most.attacker == "relabel"].fidelity.mean())
        if not isnan(relabelled):  # played
            words = f"{place}: relabel is below predictions alone, {relabelled - without:+.3f}"
            outcomes.append((relabelled >= without - SLACK, words))
        if str(defence).startswith("random-labels"):
            naive = float(most[most.attacker == "naive"].fidelity.mean()) - without
            words = f"{place}: random labels do not harm the naive attacker, {naive:+.3f}"
            outcomes.append((naive < 0, words))
    return outcomes
