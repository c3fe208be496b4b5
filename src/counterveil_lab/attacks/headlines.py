"""What inference attacks came to: the strongest attacker on each defence, honestly picked.

The best of several attackers looks good by luck alone. So he is picked by his AUC on one half of
the candidates, averaged over seeds, and what is reported is his AUC on the other half.
"""

from collections.abc import Sequence

import pandas as pd

from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.attacks.verdicts import NONE, as_table
from counterveil_lab.results import Row

CASE = ["dataset", "control", "defence", "epsilon", "target"]


def membership_table(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows that have an AUC."""
    return as_table(rows).dropna(subset="auc")


def strongest(rows: Sequence[Row]) -> list[Row]:
    """A line for each dataset, control, defence and target."""
    lines = []
    for key, group in membership_table(rows).groupby(CASE, sort=False):
        by_attack = group.groupby("attack", sort=False)
        best = by_attack.auc_first.mean().idxmax()
        chosen = by_attack.get_group(best)
        line = {**dict(zip(CASE, key, strict=True)), "attack": best, "attackers": len(by_attack)}
        lines.append({**line, **_over_seeds(chosen, "auc_second", "auc")})
    return lines


def linked(rows: Sequence[Row]) -> list[Row]:
    """How many more counterfactuals are exact rows of members than of others, over seeds."""
    found = [row for row in rows if row["attack"] == "linkage" and row["counterfactuals"] > 0]
    if not found:
        return []
    return [
        {
            **dict(zip(CASE, key, strict=True)),
            **_over_seeds(group, "exact_excess"),
            **_over_seeds(group, "near_excess"),
        }
        for key, group in as_table(found).groupby(CASE, sort=False)
    ]


def attribute_table(rows: Sequence[Row], attack: str = "attribute") -> list[Row]:
    """What a model adds to imputation by one attack, for members and others, over seeds."""
    mine = [row for row in rows if row.get("attack", "attribute") == attack]
    found, keys = [row for row in mine if row.get("value") == "all"], [*CASE, "who"]
    if not found:
        return []
    return [
        {
            **dict(zip(keys, key, strict=True)),
            **_over_seeds(group, "advantage"),
            "imputation": group.imputation.mean(),
        }
        for key, group in as_table(found).groupby(keys, sort=False)
    ]


def _over_seeds(group: pd.DataFrame, column: str, name: str = "") -> Row:
    """Mean and interval over seeds; with a single seed the interval over people is all there is."""
    mean, low, high = seeds_interval(group[column].tolist())
    if len(group) == 1:
        low, high = group[f"{column}_low"].iloc[0], group[f"{column}_high"].iloc[0]
    name = name or column
    return {"seeds": len(group), name: mean, f"{name}_low": low, f"{name}_high": high}


def sentence(line: Row) -> str:
    """One line of `strongest` in words."""
    words = f"{place_of(line)}, attack on {line['target']}: AUC {line['auc']:.3f}"
    over = f"{line['seeds']} seeds" if line["seeds"] > 1 else "people"
    words += f" [{line['auc_low']:.3f}, {line['auc_high']:.3f}] over {over}"
    if line["auc_low"] <= 0.5 <= line["auc_high"]:
        words += ", not told apart from chance"
    elif line["auc_high"] < 0.5:
        words += ", the wrong way round"
    return f"{words} (best of {line['attackers']}: {line['attack']})."


def linkage_sentence(line: Row) -> str:
    """One line of `linked` in words."""
    return (
        f"{place_of(line)}: {line['exact_excess']:+.3f} [{line['exact_excess_low']:+.3f}, "
        f"{line['exact_excess_high']:+.3f}] more of the counterfactuals are exact rows of members "
        f"than of others."
    )


def attribute_sentence(line: Row) -> str:
    """One line of `attribute_table` in words."""
    return (
        f"{place_of(line)}, {line['target']}, {line['who']}: {line['advantage']:+.3f} "
        f"[{line['advantage_low']:+.3f}, {line['advantage_high']:+.3f}] balanced accuracy beyond "
        f"imputation ({line['imputation']:.3f})."
    )


def place_of(line: Row) -> str:
    """Dataset, defence with its ε, and control of a line in words."""
    name = line["defence"] + (f" at ε {line['epsilon']:g}" if line["epsilon"] != NONE else "")
    control = "" if line["control"] == "none" else f" ({line['control']} control)"
    return f"{line['dataset']}, {name}{control}"
