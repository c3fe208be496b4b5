"""What inference attacks came to: the strongest attacker on each defence, honestly picked.

The best of several attackers looks good by luck alone. So he is picked by his AUC on one half of
the candidates, averaged over seeds, and what is reported is his AUC on the other half. An AUC below
0.5 tells members from others as well as one that lies as far above it: who knows that members score
lower turns his scores round. So the attacker with the lowest AUC is picked beside the one with the
highest.
"""

from typing import Any

import pandas as pd

from counterveil_lab import intervals
from counterveil_lab.attacks.verdicts import NONE, Rows, as_table
from counterveil_lab.results import Row

HIGHEST, LOWEST = "highest", "lowest"
CASE = ["dataset", "control", "defence", "epsilon", "target"]
# The columns that the lines are made of, beside those that name a case.
SCORED = ["attack", "auc_first", "auc_second", "auc_second_low", "auc_second_high"]
LINKED = ["attack", "counterfactuals"]
LINKED += [f"{what}_excess{end}" for what in ("exact", "near") for end in ("", "_low", "_high")]
GUESSED = ["attack", "value", "who", "imputation"]
GUESSED += [f"advantage{end}" for end in ("", "_low", "_high")]


def membership_table(rows: Rows) -> pd.DataFrame:
    """The rows that have an AUC."""
    return as_table(rows).dropna(subset="auc")


def strongest(rows: Rows) -> list[Row]:
    """A line for each dataset, control, defence and target: the attack with the highest AUC."""
    return [line for line in both_ways(rows) if line["end"] == HIGHEST]


def both_ways(rows: Rows) -> list[Row]:
    """The attacks with the highest and with the lowest AUC, for each case as in `strongest`.

    `end` says which. The lowest has a line where it is another attack and lies below 0.5.
    `direction` is 1 or -1: above or below 0.5 on the half that picks; `picked_by`: how far from it.
    """
    lines = []
    for key, by_attack in _by_case(membership_table(rows)).items():
        first = {name: part.auc_first.mean() - 0.5 for name, part in by_attack.items()}
        ends = {max(first, key=first.__getitem__): HIGHEST}
        if (lowest := min(first, key=first.__getitem__)) not in ends and first[lowest] < 0:
            ends[lowest] = LOWEST
        for attack, end in ends.items():
            told = first[attack]
            lines.append(
                {
                    **dict(zip(CASE, key, strict=True)),
                    "attack": attack,
                    "attackers": len(by_attack),
                    "end": end,
                    "direction": -1 if told < 0 else 1,
                    "picked_by": abs(told),
                    **_over_seeds(by_attack[attack], "auc_second", "auc", share=True),
                }
            )
    return lines


def _by_case(table: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, pd.DataFrame]]:
    """The rows of every attack in every case, with the columns that `both_ways` needs."""
    keys = [*CASE, "attack"]
    found: dict[tuple[Any, ...], dict[str, pd.DataFrame]] = {}
    for key, part in table.reindex(columns=[*CASE, *SCORED]).groupby(keys, sort=False):
        *case, attack = key
        found.setdefault(tuple(case), {})[str(attack)] = part
    return found


def linked(rows: Rows) -> list[Row]:
    """How many more counterfactuals are exact rows of members than of others, over seeds."""
    table = as_table(rows).reindex(columns=[*CASE, *LINKED])
    found = table[(table.attack == "linkage") & (pd.to_numeric(table.counterfactuals) > 0)]
    return [
        {
            **dict(zip(CASE, key, strict=True)),
            **_over_seeds(group, "exact_excess"),
            **_over_seeds(group, "near_excess"),
        }
        for key, group in found.groupby(CASE, sort=False)
    ]


def attribute_table(rows: Rows, attack: str = "attribute") -> list[Row]:
    """What a model adds to imputation by one attack, for members and others, over seeds."""
    table, keys = as_table(rows).reindex(columns=[*CASE, *GUESSED]), [*CASE, "who"]
    unnamed = table.attack.isna() & (attack == "attribute")
    found = table[((table.attack == attack) | unnamed) & (table.value == "all")]
    return [
        {
            **dict(zip(keys, key, strict=True)),
            **_over_seeds(group, "advantage"),
            "imputation": group.imputation.mean(),
        }
        for key, group in found.groupby(keys, sort=False)
    ]


def _over_seeds(group: pd.DataFrame, column: str, name: str = "", *, share: bool = False) -> Row:
    """Mean and interval over seeds; with a single seed the interval over people is all there is."""
    values, seeds = group[column], len(group)
    mean = float(values.mean())
    spread: Any = values.sem()
    if seeds == 1:
        low, high = group[f"{column}_low"].iloc[0], group[f"{column}_high"].iloc[0]
    else:
        interval = intervals.of_share if share else intervals.of_mean
        low, high = interval(mean, seeds, float(spread))
    name = name or column
    return {"seeds": seeds, name: mean, f"{name}_low": low, f"{name}_high": high}


def place_of(line: Row) -> str:
    """Dataset, defence with its ε, and control of a line in words."""
    name = line["defence"] + (f" at ε {line['epsilon']:g}" if line["epsilon"] != NONE else "")
    control = "" if line["control"] == "none" else f" ({line['control']} control)"
    return f"{line['dataset']}, {name}{control}"
