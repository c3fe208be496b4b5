"""What the numbers of the attacks say, in sentences that are computed and never written by hand.

A defence is judged by its strongest attacker: the highest mean over seeds, whoever that is. Picking
the best of several makes the number err on the attacker's side; its interval does not account for
the picking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import pandas as pd

from counterveil_lab.attacks.extraction import ATTACKERS, BASES
from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.results import Row

DEFENCE = ["dataset", "defence", "epsilon", "predictions"]
WAY = ["architecture", "queries"]
NONE = -1.0  # stands for "no ε": groups want a number


@dataclass(frozen=True)
class Headline:
    """A line for each defence, and what each says."""

    table: list[Row]
    sentences: list[str]


def gains(rows: Sequence[Row]) -> pd.DataFrame:
    """Every attacker's fidelity less that of the base with as many questions to f."""
    table = pd.DataFrame(rows)
    table["epsilon"] = pd.to_numeric(table["epsilon"]).fillna(NONE)
    bases = {
        name: table[table.attacker == name].set_index([*DEFENCE, *WAY, "seed"]).fidelity
        for name in BASES
    }
    attacks = table[~table.attacker.isin(BASES)].copy()
    keys = pd.MultiIndex.from_frame(attacks[[*DEFENCE, *WAY, "seed"]])
    alike, twice = (bases[name].reindex(keys).to_numpy() for name in BASES)
    attacks["base"] = pd.Series(alike, attacks.index).where(attacks.extra_queries == 0, twice)
    attacks["gain"] = attacks.fidelity - attacks.base
    return attacks


def headline(rows: Sequence[Row]) -> Headline:
    """The strongest attacker on every defence, and how much he gains from counterfactuals."""
    attacks = gains(rows)
    table = [_strongest(group) for _, group in attacks.groupby(DEFENCE, sort=False)]
    return Headline(table, [sentence(line) for line in table])


def sentence(line: Row) -> str:
    """One line of the headline in words."""
    name = line["defence"]
    if line["epsilon"] is not None:
        name += f" at ε {line['epsilon']:g}"
    start = f"{line['dataset']}, {name}, f answers with {line['predictions']}: "
    against = f"against the best of {line['attackers']} attackers"
    if line["attacker"] == "drop":
        return f"{start}explanations add nothing over predictions alone, {against}."
    way = f"{line['attacker']}, {line['queries']} queries, {line['architecture']} architecture"
    sure = "" if line["half_width"] is None else f" ± {line['half_width']:.3f}"
    words = (
        f"{start}explanations add at most {line['gain']:.3f}{sure} fidelity over as many "
        f"predictions alone ({line['base']:.3f}), {against} ({way})"
    )
    if line["half_width"] is not None and line["gain"] <= line["half_width"]:
        words += "; not told apart from nothing"
    return words + "."


def _strongest(attacks: pd.DataFrame) -> Row:
    groups = attacks.groupby(["attacker", *WAY], sort=False)
    best = groups.gain.mean().idxmax()
    chosen = groups.get_group(best)
    first = chosen.iloc[0]
    mean, low, _ = seeds_interval(chosen.gain.tolist())
    naive = attacks[attacks.attacker == "naive"].groupby(WAY).gain.mean()
    known = pd.isna(low) or len(chosen) < 2
    return {
        "dataset": first.dataset,
        "defence": first.defence,
        "epsilon": None if first.epsilon == NONE else float(first.epsilon),
        "predictions": first.predictions,
        "attacker": first.attacker,
        "architecture": first.architecture,
        "queries": int(first.queries),
        "attackers": int(attacks[attacks.attacker.isin(ATTACKERS)].attacker.nunique()),
        "seeds": int(chosen.seed.nunique()),
        "base": float(chosen.base.mean()),
        "fidelity": float(chosen.fidelity.mean()),
        "gain": mean,
        "half_width": None if known else mean - low,
        "naive_lowest": float(naive.min()) if len(naive) else None,
        "flip_ratio": float(chosen.flip_ratio.mean()),
    }


def verdicts(extraction: Sequence[Row], inference: Sequence[Row]) -> list[str]:
    """A sentence for every defence and kind of attack."""
    return [
        *(headline(extraction).sentences if extraction else []),
        *_membership(inference),
        *_linkage(inference),
        *_attribute(inference),
    ]


def _membership(rows: Sequence[Row]) -> list[str]:
    """The best of several attacks: picked on one half of the people, reported on the other."""
    words = []
    scored = [row for row in rows if row.get("auc") is not None]
    groups = dict.fromkeys((row["defence"], row["target"]) for row in scored)
    for defence, target in groups:
        mine = [row for row in scored if (row["defence"], row["target"]) == (defence, target)]
        best = max(mine, key=lambda row: float(row["auc_first"]))
        what = {
            "f": "asking the model directly",
            "f'": "a copy of the model from predictions alone"
            if defence == "none"
            else f"a copy of the model from predictions and {defence}",
            "cf": f"the counterfactuals of {defence} themselves",
        }[target]
        auc = float(best["auc_second"])
        # The interval is that of all people; half of them know less by a factor of √2.
        sure = sqrt(2) * (float(best["auc_high"]) - float(best["auc_low"])) / 2
        chance = "; not told apart from guessing" if auc - sure <= 0.5 else ""
        words.append(
            f"Membership by {what}: the best of {len(mine)} attacks ({best['attack']}) reaches an "
            f"AUC of {auc:.3f} ± {sure:.3f} (.5 is guessing){chance}."
        )
    return words


def _linkage(rows: Sequence[Row]) -> list[str]:
    words = []
    for row in rows:
        if row["attack"] != "linkage" or not row["counterfactuals"]:
            continue
        told = row["exact_excess_low"] > 0 or row["near_excess_low"] > 0
        words.append(
            f"Linkage, {row['defence']}: {row['exact_members']:.1%} of counterfactuals are a "
            f"training row, {row['exact_outsiders']:.1%} are a row that nobody trained on; nearly "
            f"so {row['near_members']:.1%} and {row['near_outsiders']:.1%}"
            + (": training rows are given away." if told else "; no excess is shown.")
        )
    return words


def _attribute(rows: Sequence[Row]) -> list[str]:
    words = []
    for row in rows:
        if row["attack"] != "attribute" or row["value"] != "all" or row["who"] != "members":
            continue
        if row["target"] == "f" and row["defence"] != "none":
            continue  # the same model, asked again
        source = "the model"
        if row["target"] != "f":
            more = "" if row["defence"] == "none" else f" and {row['defence']}"
            source = f"a copy of it from predictions{more}"
        shown = "" if row["advantage_low"] > 0 else "; not told apart from none"
        words.append(
            f"Attribute {row['attribute']} of members with {source}: balanced accuracy "
            f"{row['advantage']:+.3f} over guessing it from the other values{shown}."
        )
    return words
