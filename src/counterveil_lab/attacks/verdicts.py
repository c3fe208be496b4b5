"""What the numbers of the attacks say, in sentences that are computed and never written by hand.

A defence is judged by its strongest attacker: the highest mean over seeds, whoever that is. Picking
the best of several makes this number err on the attacker's side. So whether he gained anything is
decided by another: for each seed the attacker is picked on the other seeds and scored on this one.
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
TABLES = "tables"  # the target of who asks no model
FEWEST_DISTINCT = 10  # counterfactuals; with fewer linkage says nothing
FEWEST_SEEDS = 3  # to pick an attacker on some and score him on others
NONE = -1.0  # stands for "no ε": groups want a number


@dataclass(frozen=True)
class Headline:
    """A line for each defence, and what each says."""

    table: list[Row]
    sentences: list[str]


def gains(rows: Sequence[Row], column: str = "fidelity") -> pd.DataFrame:
    """Every attacker's fidelity less that of the base with as many questions to f."""
    table = pd.DataFrame(rows)
    table["epsilon"] = pd.to_numeric(table["epsilon"]).fillna(NONE)
    bases = {
        name: table[table.attacker == name].set_index([*DEFENCE, *WAY, "seed"])[column]
        for name in BASES
    }
    attacks = table[~table.attacker.isin(BASES)].copy()
    keys = pd.MultiIndex.from_frame(attacks[[*DEFENCE, *WAY, "seed"]])
    alike, twice = (bases[name].reindex(keys).to_numpy() for name in BASES)
    attacks["base"] = pd.Series(alike, attacks.index).where(attacks.extra_queries == 0, twice)
    attacks["gain"] = attacks[column] - attacks.base
    return attacks


def headline(rows: Sequence[Row], column: str = "fidelity") -> Headline:
    """The strongest attacker on every defence, and how much he gains from counterfactuals.

    `column`: of fidelity, on test rows or on legal rows drawn evenly.
    """
    attacks = gains(rows, column)
    table = [_strongest(group) for _, group in attacks.groupby(DEFENCE, sort=False)]
    return Headline(table, [sentence(line) for line in table])


def sentence(line: Row) -> str:
    """One line of the headline in words."""
    name = line["defence"]
    if line["epsilon"] is not None:
        name += f" at ε {line['epsilon']:g}"
    start = f"{line['dataset']}, {name}, f answers with {line['predictions']}: "
    way = f"{line['attacker']}, {line['queries']} queries, {line['architecture']} architecture"
    sure = "" if line["half_width"] is None else f" ± {line['half_width']:.3f}"
    unseen = ""
    if line["unseen"] is not None:
        unseen = f"; picked on other seeds {line['unseen']:+.3f} ± {line['unseen_half_width']:.3f}"
    if line["gain"] <= 0:
        return (
            f"{start}no attacker of {line['attackers']} gained fidelity on test rows over as many "
            f"predictions alone ({line['base']:.3f}; best: {line['gain']:+.3f}{sure}, "
            f"{way}{unseen})."
        )
    words = (
        f"{start}explanations added {line['gain']:.3f}{sure} fidelity on test rows over as many "
        f"predictions alone ({line['base']:.3f}), against the best of {line['attackers']} "
        f"attackers ({way}{unseen})"
    )
    return words + ("" if gained(line) in {True, None} else "; not told apart from nothing") + "."


def gained(line: Row) -> bool | None:
    """Whether the strongest attacker of a line of the headline gained; None: too few seeds."""
    if line["unseen"] is not None:
        return bool(line["unseen"] > line["unseen_half_width"])
    return None if line["half_width"] is None else bool(line["gain"] > line["half_width"])


def _strongest(attacks: pd.DataFrame) -> Row:
    """Who throws the counterfactuals away is the base and wins nothing: he is not in it."""
    played = attacks[attacks.attacker.isin(ATTACKERS)]
    attacks = played if len(played) else attacks
    groups = attacks.groupby(["attacker", *WAY], sort=False)
    best = groups.gain.mean().idxmax()
    chosen = groups.get_group(best)
    first = chosen.iloc[0]
    mean, low, _ = seeds_interval(chosen.gain.tolist())
    naive = attacks[attacks.attacker == "naive"].groupby(WAY).gain.mean()
    known = pd.isna(low) or len(chosen) < 2
    unseen, unseen_low, _ = seeds_interval(_picked_elsewhere(attacks))
    scarce = chosen.seed.nunique() < FEWEST_SEEDS
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
        "unseen": None if scarce else unseen,
        "unseen_half_width": None if scarce else unseen - unseen_low,
        "naive_lowest": float(naive.min()) if len(naive) else None,
        "flip_ratio": float(chosen.flip_ratio.mean()),
    }


def _picked_elsewhere(attacks: pd.DataFrame) -> list[float]:
    """For each seed the gain of the attacker who did best on all other seeds."""
    table = attacks.pivot_table(index="seed", columns=["attacker", *WAY], values="gain")
    table = table.dropna(axis=1)
    found = [table.loc[seed, table.drop(index=seed).mean().idxmax()] for seed in table.index
             if len(table) > 1]  # fmt: skip
    return [float(value) for value in found] or [float(attacks.gain.max())]


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
        if target == TABLES:
            words.append(_tables(best))
            continue
        what = {
            "f": "asking the model directly",
            "f'": "a copy of the model from predictions alone"
            if defence == "none"
            else f"a copy of the model from predictions and {defence}",
            "cf": f"the counterfactuals of {defence} themselves",
        }[target]
        auc, low, high = (float(best[f"auc_second{end}"]) for end in ("", "_low", "_high"))
        chance = ""
        if low <= 0.5 <= high:
            chance = "; not told apart from guessing"
        elif high < 0.5:
            chance = "; told apart from guessing, the wrong way round"
        words.append(
            f"Membership by {what}: the best of {len(mine)} attacks ({best['attack']}) reaches an "
            f"AUC of {auc:.3f} [{low:.3f}, {high:.3f}] (.5 is guessing){chance}."
        )
    return words


def _tables(row: Row) -> str:
    """The control: nobody who asks no model can tell members from others by membership."""
    words = (
        f"Control: without any model the two tables are told apart with an AUC of "
        f"{row['auc']:.3f} [{row['auc_low']:.3f}, {row['auc_high']:.3f}]"
    )
    if row["auc_low"] <= 0.5 <= row["auc_high"]:
        return f"{words}; no difference between them is shown."
    return (
        f"{words}: members and others differ by themselves, and every number on membership and "
        f"linkage must be read with that."
    )


def _linkage(rows: Sequence[Row]) -> list[str]:
    words = []
    for row in rows:
        if row["attack"] != "linkage":
            continue
        start = f"Linkage, {row['defence']}: "
        if not row["counterfactuals"]:
            words.append(f"{start}no counterfactual was found, so there was nothing to link.")
            continue
        start += (
            f"{row['exact_training']:.1%} of {row['counterfactuals']} counterfactuals are a "
            f"training row ({row['training']} were looked through); "
        )
        if row["distinct"] < FEWEST_DISTINCT:
            words.append(
                f"{start}only {row['distinct']} of them are distinct: too few for a verdict."
            )
            continue
        told = row["exact_excess_low"] > 0 or row["near_excess_low"] > 0
        words.append(
            f"{start}against {row['rows']} members and as many others, {row['exact_members']:.1%} "
            f"are a row of a member and {row['exact_outsiders']:.1%} one of somebody the model "
            f"was not trained on; nearly so {row['near_members']:.1%} and "
            f"{row['near_outsiders']:.1%}"
            + (": training rows are given away." if told else "; no excess is shown.")
        )
    return words


def _attribute(rows: Sequence[Row]) -> list[str]:
    """What counts is what members lose beyond people the model never saw."""
    words = []
    overall = [row for row in rows if row["attack"] == "attribute" and row["value"] == "all"]
    for row in overall:
        if row["who"] != "members" or (row["target"] == "f" and row["defence"] != "none"):
            continue  # f is the same model whatever explains it
        source = "the model"
        if row["target"] != "f":
            more = "" if row["defence"] == "none" else f" and {row['defence']}"
            kind = "relabelled copy" if row["target"].endswith("relabel") else "copy"
            source = f"a {kind} of it from predictions{more}"
        start = (
            f"Attribute {row['attribute']} of members with {source}: balanced accuracy "
            f"{row['advantage']:+.3f} over guessing it from the other values"
        )
        same = (row["defence"], row["target"])
        beside = [
            each
            for each in overall
            if each["who"] != "members" and (each["defence"], each["target"]) == same
        ]
        if not beside:
            shown = "" if row["advantage_low"] > 0 else "; not told apart from none"
            words.append(f"{start}{shown}.")
            continue
        excess = float(row["advantage"] - beside[0]["advantage"])
        half = sqrt(sum(
            (float(each["advantage_high"] - each["advantage_low"]) / 2) ** 2
            for each in (row, beside[0])
        ))  # fmt: skip
        shown = "" if excess > half else "; not told apart from none"
        words.append(
            f"{start}, {beside[0]['advantage']:+.3f} for people it was not trained on: an excess "
            f"of {excess:+.3f} ± {half:.3f}{shown}."
        )
    return words
