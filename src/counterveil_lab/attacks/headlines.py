"""What inference attacks came to: the strongest attacker on each defence, honestly picked.

The best of several attackers looks good by luck alone. So he is picked by his AUC on one half of
the candidates, averaged over seeds, and what is reported is his AUC on the other half.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.results import Row

NONE = -1.0  # stands for "no ε": groups want a number
CASE = ["dataset", "control", "defence", "epsilon", "target"]


def membership_table(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows that have an AUC."""
    table = pd.DataFrame(rows)
    table["epsilon"] = pd.to_numeric(table["epsilon"]).fillna(NONE)
    return table[table.auc.notna()]


def strongest(rows: Sequence[Row]) -> list[Row]:
    """A line for each dataset, control, defence and target."""
    lines = []
    for key, group in membership_table(rows).groupby(CASE, sort=False):
        by_attack = group.groupby("attack", sort=False)
        best = by_attack.auc_first.mean().idxmax()
        chosen = by_attack.get_group(best)
        mean, low, high = seeds_interval(chosen.auc_second.tolist())
        if len(chosen) == 1:  # a single seed: the interval over people is all there is
            low, high = chosen.auc_second_low.iloc[0], chosen.auc_second_high.iloc[0]
        known = pd.to_numeric(chosen.tpr_at_1).dropna()
        lines.append({
            **dict(zip(CASE, key, strict=True)), "attack": best, "attackers": len(by_attack),
            "seeds": len(chosen), "auc": mean, "auc_low": low, "auc_high": high,
            "tpr_at_1": float(known.mean()) if len(known) else None,
        })  # fmt: skip
    return lines


def sentence(line: Row) -> str:
    """One line in words."""
    name = line["defence"] + (f" at ε {line['epsilon']:g}" if line["epsilon"] != NONE else "")
    control = "" if line["control"] == "none" else f" ({line['control']} control)"
    words = f"{line['dataset']}, {name}{control}, attack on {line['target']}: AUC {line['auc']:.3f}"
    over = f"{line['seeds']} seeds" if line["seeds"] > 1 else "people"
    words += f" [{line['auc_low']:.3f}, {line['auc_high']:.3f}] over {over}"
    if line["auc_low"] <= 0.5 <= line["auc_high"]:
        words += ", not told apart from chance"
    elif line["auc_high"] < 0.5:
        words += ", the wrong way round"
    return f"{words} (best of {line['attackers']}: {line['attack']})."


def _name(line: Row) -> str:
    name = line["defence"] + (f" at ε {line['epsilon']:g}" if line["epsilon"] != NONE else "")
    control = "" if line["control"] == "none" else f" ({line['control']} control)"
    return f"{line['dataset']}, {name}{control}"


def linked(rows: Sequence[Row]) -> list[Row]:
    """How many more counterfactuals are exact rows of members than of others, over seeds."""
    table = pd.DataFrame([row for row in rows if row["attack"] == "linkage"])
    if table.empty or not (table.counterfactuals > 0).any():
        return []
    table = table[(table.attack == "linkage") & (table.counterfactuals > 0)]
    table["epsilon"] = pd.to_numeric(table["epsilon"]).fillna(NONE)
    lines = []
    for key, group in table.groupby(CASE, sort=False):
        line = dict(zip(CASE, key, strict=True))
        for name in ("exact_excess", "near_excess"):
            mean, low, high = seeds_interval(group[name].tolist())
            if len(group) == 1:
                low, high = group[f"{name}_low"].iloc[0], group[f"{name}_high"].iloc[0]
            line |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        lines.append({**line, "seeds": len(group)})
    return lines


def linkage_sentence(line: Row) -> str:
    """One line of `linked` in words."""
    return (
        f"{_name(line)}: {line['exact_excess']:+.3f} [{line['exact_excess_low']:+.3f}, "
        f"{line['exact_excess_high']:+.3f}] more of the counterfactuals are exact rows of members "
        f"than of others."
    )


def attribute_table(rows: Sequence[Row]) -> list[Row]:
    """What a model adds to imputation, for members and others, over seeds."""
    table = pd.DataFrame([row for row in rows if row.get("value") == "all"])
    if table.empty:
        return []
    table["epsilon"] = pd.to_numeric(table["epsilon"]).fillna(NONE)
    lines = []
    keys = [*CASE, "who"]
    for key, group in table.groupby(keys, sort=False):
        mean, low, high = seeds_interval(group.advantage.tolist())
        if len(group) == 1:  # a single seed: the interval over people is all there is
            low, high = group.advantage_low.iloc[0], group.advantage_high.iloc[0]
        lines.append({
            **dict(zip(keys, key, strict=True)), "seeds": len(group), "advantage": mean,
            "advantage_low": low, "advantage_high": high,
            "imputation": group.imputation.mean(),
        })  # fmt: skip
    return lines


def attribute_sentence(line: Row) -> str:
    """One line of `attribute_table` in words."""
    return (
        f"{_name(line)}, {line['target']}, {line['who']}: {line['advantage']:+.3f} "
        f"[{line['advantage_low']:+.3f}, {line['advantage_high']:+.3f}] balanced accuracy beyond "
        f"imputation ({line['imputation']:.3f})."
    )
