"""What the numbers of the attacks say, in sentences that are computed and never written by hand.

A defence is judged by its strongest attacker: the highest mean over seeds. Picking the best of
several errs on the attacker's side, so whether he gained anything is decided by another number: for
each seed the attacker is picked on the other seeds and scored on this one.
"""

from collections.abc import Sequence
from math import hypot
from typing import Any

import numpy as np
import pandas as pd

from counterveil_lab.attacks.extraction import ATTACKERS, BASES
from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.results import Row

DEFENCE = ["dataset", "defence", "epsilon", "predictions"]
WAY = ["architecture", "queries"]
FEWEST_DISTINCT = 10  # counterfactuals; with fewer linkage says nothing
FEWEST_SEEDS = 3  # to pick an attacker on some and score him on others
NONE = -1.0  # stands for "no ε": groups want a number
Rows = Sequence[Row] | pd.DataFrame
# The columns that a line of the headline is made of.
PLAYED = [*DEFENCE, "attacker", *WAY, "seed", "extra_queries", "fidelity", "flip_ratio"]
NUMBERS = ["way", "seed", "base", "gain", "fidelity", "flip_ratio"]


def as_table(rows: Rows) -> pd.DataFrame:
    """Rows as a frame, with `NONE` where there is no ε."""
    table = pd.DataFrame(rows)
    return table.assign(epsilon=pd.to_numeric(table["epsilon"]).fillna(NONE))


def gains(rows: Rows, column: str = "fidelity", apart: Sequence[str] = ()) -> pd.DataFrame:
    """Every attacker's fidelity less that of the base with as many questions to f.

    `apart`: further columns, whose values have each their own base.
    """
    table, keys = as_table(rows), [*apart, *DEFENCE, *WAY, "seed"]
    case = table.groupby(keys, dropna=False).ngroup().to_numpy()
    attacking = (~table.attacker.isin(BASES)).to_numpy()
    attacks = table[attacking].copy()
    alike, twice = (
        table[column][is_base].set_axis(case[is_base]).reindex(case[attacking]).to_numpy()
        for is_base in ((table.attacker == name).to_numpy() for name in BASES)
    )
    attacks["base"] = pd.Series(alike, attacks.index).where(attacks.extra_queries == 0, twice)
    attacks["gain"] = attacks[column] - attacks.base
    return attacks


def headline(rows: Rows, column: str = "fidelity", apart: Sequence[str] = ()) -> list[Row]:
    """A line for every defence: its strongest attacker, and what counterfactuals gain him.

    `column`: of fidelity, on test rows or on legal rows drawn evenly. `apart`: further columns,
    whose values have each their own lines.
    """
    keys = [*apart, *DEFENCE]
    table = as_table(rows)[list(dict.fromkeys([*apart, *PLAYED, column]))]
    played = gains(table, column, apart)
    # Who throws the counterfactuals away is left out where another attacks: he is the base.
    plays = played.attacker.isin(ATTACKERS)
    played = played[plays | ~plays.groupby([played[name] for name in keys]).transform("any")]
    played = played.assign(way=played.groupby(["attacker", *WAY]).ngroup())
    ways = played.drop_duplicates("way").set_index("way")[["attacker", *WAY]]
    lines = []
    for key, group in played.groupby(keys, sort=False)[NUMBERS]:
        head: Row = dict(zip(keys, key, strict=True))
        head["epsilon"] = None if head["epsilon"] == NONE else float(head["epsilon"])
        lines.append({**head, **_strongest(group, ways)})
    return lines


def sentence(line: Row) -> str:
    name = line["defence"] + ("" if line["epsilon"] is None else f" at ε {line['epsilon']:g}")
    start = f"{line['dataset']}, {name}, f answers with {line['predictions']}: "
    way = f"{line['attacker']}, {line['queries']} queries, {line['architecture']} architecture"
    sure = "" if line["half_width"] is None else f" ± {line['half_width']:.3f}"
    if line["unseen"] is not None:
        way += f"; picked on other seeds {line['unseen']:+.3f} ± {line['unseen_half_width']:.3f}"
    base = f"fidelity on test rows over as many predictions alone ({line['base']:.3f}"
    if line["gain"] <= 0:
        return (
            f"{start}no attacker of {line['attackers']} gained {base}; "
            f"best: {line['gain']:+.3f}{sure}, {way})."
        )
    doubt = "" if gained(line) in {True, None} else "; not told apart from nothing"
    return (
        f"{start}explanations added {line['gain']:.3f}{sure} {base}), against the best of "
        f"{line['attackers']} attackers ({way}){doubt}."
    )


def gained(line: Row) -> bool | None:
    """Whether the strongest attacker of a line of the headline gained; None: too few seeds."""
    if line["unseen"] is not None:
        return bool(line["unseen"] > line["unseen_half_width"])
    return None if line["half_width"] is None else bool(line["gain"] > line["half_width"])


def _strongest(attacks: pd.DataFrame, ways: pd.DataFrame) -> Row:
    """The attacker with the highest mean gain, and the numbers of his line.

    `ways`: attacker, architecture and queries for each number in the column `way` of `attacks`.
    """
    means = attacks.groupby("way", sort=False).gain.mean()
    attackers = ways.attacker[means.index]
    best: Any = means.idxmax()
    chosen, way = attacks[attacks.way == best], ways.loc[best]
    seeds = int(chosen.seed.nunique())
    mean, low, _ = seeds_interval(chosen.gain.tolist())
    unseen, unseen_low, _ = seeds_interval(_picked_elsewhere(attacks))
    naive = means[attackers == "naive"]
    enough = seeds >= FEWEST_SEEDS
    return {
        "attacker": way.attacker,
        "architecture": way.architecture,
        "queries": int(way.queries),
        "attackers": len({*attackers} & {*ATTACKERS}),
        "seeds": seeds,
        "base": float(chosen.base.mean()),
        "fidelity": float(chosen.fidelity.mean()),
        "gain": mean,
        "half_width": None if pd.isna(low) else mean - low,
        "unseen": unseen if enough else None,
        "unseen_half_width": unseen - unseen_low if enough else None,
        "naive_lowest": float(naive.min()) if len(naive) else None,
        "flip_ratio": float(chosen.flip_ratio.mean()),
    }


def _picked_elsewhere(attacks: pd.DataFrame) -> list[float]:
    """For each seed the gain of the attacker who did best on all other seeds."""
    known = attacks[attacks.gain.notna()]
    seeds, seed_of = np.unique(known.seed, return_inverse=True)
    ways, way_of = np.unique(known.way, return_inverse=True)
    table = np.full((len(seeds), len(ways)), np.nan)
    table[seed_of, way_of] = known.gain
    table = table[:, ~np.isnan(table).any(axis=0)]
    if len(table) < 2:
        return [float(attacks.gain.max())]
    best = [np.delete(table, seed, axis=0).mean(axis=0).argmax() for seed in range(len(table))]
    return [float(gain) for gain in table[range(len(table)), best]]


def verdicts(extraction: Sequence[Row], inference: Sequence[Row]) -> list[str]:
    """A sentence for every defence and kind of attack."""
    return [
        *(sentence(line) for line in (headline(extraction) if extraction else ())),
        *_membership(inference),
        *(_linkage(row) for row in inference if row["attack"] == "linkage"),
        *_attribute(inference),
    ]


def _membership(rows: Sequence[Row]) -> list[str]:
    """The best of several attacks: picked on one half of the people, reported on the other.

    Where the one with the lowest AUC is told apart from guessing too, it has a sentence as well.
    """
    words = []
    scored = [row for row in rows if row.get("auc") is not None]
    for defence, target in dict.fromkeys((row["defence"], row["target"]) for row in scored):
        mine = [row for row in scored if (row["defence"], row["target"]) == (defence, target)]
        best, lowest = (end(mine, key=lambda row: float(row["auc_first"])) for end in (max, min))
        if target == "tables":  # of who asks no model
            words.append(_tables(best))
            continue
        seen = "alone" if defence == "none" else f"and {defence}"
        what = {
            "f": "asking the model directly",
            "f'": f"a copy of the model from predictions {seen}",
            "cf": f"the counterfactuals of {defence} themselves",
        }[target]
        start = f"Membership by {what}: the best of {len(mine)} attacks"
        words.append(f"{start} ({best['attack']}) reaches {_auc(best)}.")
        if lowest is not best and lowest["auc_second_high"] < 0.5:
            words.append(f"{start}, turned round, ({lowest['attack']}) reaches {_auc(lowest)}.")
    return words


def _auc(row: Row) -> str:
    auc, low, high = (float(row[f"auc_second{end}"]) for end in ("", "_low", "_high"))
    told = f"told apart from guessing: {members_score(auc)}"
    chance = "not told apart from guessing" if low <= 0.5 <= high else told
    return f"an AUC of {auc:.3f} [{low:.3f}, {high:.3f}] (.5 is guessing); {chance}"


def members_score(auc: float) -> str:
    """The side of .5 on which an AUC lies, in words; both sides tell members from others."""
    return f"members score {'lower' if auc < 0.5 else 'higher'} than others"


def _tables(row: Row) -> str:
    """The control: nobody who asks no model can tell members from others by membership."""
    auc, low, high = row["auc"], row["auc_low"], row["auc_high"]
    words = "Control: without any model the two tables are told apart with an AUC of "
    words += f"{auc:.3f} [{low:.3f}, {high:.3f}]"
    if low <= 0.5 <= high:
        return f"{words}; no difference between them is shown."
    return (
        f"{words}: members and others differ by themselves, and every number on membership and "
        f"linkage must be read with that."
    )


def _linkage(row: Row) -> str:
    start = f"Linkage, {row['defence']}: "
    if not row["counterfactuals"]:
        return f"{start}no counterfactual was found, so there was nothing to link."
    start += (
        f"{row['exact_training']:.1%} of {row['counterfactuals']} counterfactuals are a "
        f"training row ({row['training']} were looked through); "
    )
    if row["distinct"] < FEWEST_DISTINCT:
        return f"{start}only {row['distinct']} of them are distinct: too few for a verdict."
    told = row["exact_excess_low"] > 0 or row["near_excess_low"] > 0
    return (
        f"{start}against {row['rows']} members and as many others, {row['exact_members']:.1%} "
        f"are a row of a member and {row['exact_outsiders']:.1%} one of somebody the model "
        f"was not trained on; nearly so {row['near_members']:.1%} and {row['near_outsiders']:.1%}"
        + (": training rows are given away." if told else "; no excess is shown.")
    )


def _attribute(rows: Sequence[Row]) -> list[str]:
    """What counts is what members lose beyond people the model never saw."""
    words = []
    overall = [row for row in rows if row["attack"] == "attribute" and row["value"] == "all"]
    others = {(x["defence"], x["target"]): x for x in overall if x["who"] != "members"}
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
        beside = others.get((row["defence"], row["target"]))
        if beside is None:
            shown, excess = row["advantage_low"] > 0, ""
        else:
            more_than = float(row["advantage"] - beside["advantage"])
            half = hypot(*((x["advantage_high"] - x["advantage_low"]) / 2 for x in (row, beside)))
            shown = more_than > half
            excess = f", {beside['advantage']:+.3f} for people it was not trained on: an excess "
            excess += f"of {more_than:+.3f} ± {half:.3f}"
        words.append(start + excess + ("" if shown else "; not told apart from none") + ".")
    return words
