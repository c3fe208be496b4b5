"""Sections on inference attacks, and on what answers serve people and thieves."""

from __future__ import annotations

from collections.abc import Sequence

from counterveil_lab.attacks.verdicts import headline
from counterveil_lab.report.blocks import Cell, Content, State, Table, Verdict
from counterveil_lab.report.numbers import average, distinct, groups, number, pick, word
from counterveil_lab.report.part_attacks import (
    DEFENCES,
    NEEDED,
    NON_DP,
    cases,
    names_of,
    of,
    source_name,
    sources,
)
from counterveil_lab.report.rules import tally
from counterveil_lab.report.tables import FLIP, Measure, anything, by_case, repeats_note, some
from counterveil_lab.report.ways import dataset_name
from counterveil_lab.results import Row

AUC = Measure("auc", "AUC", 3)
AT_1 = Measure("tpr_at_1", "members found at 1 % false alarms", 3)
CHANCE = 0.5
NOISE = 0.02  # of AUC: nearer to chance than this is not told apart from it
AWAY = Measure("distance", "distance", 2)
MORE = 0.01  # of balanced accuracy beyond imputation
SEEN = 0.6  # of AUC: an attack that works
CONTROLS = {
    "disjoint": "those called members were never trained on",
    "overfitted": "f knows its rows by heart",
}
SURE = (
    "The interval is over seeds; the file also has one over people for every row. Where the people "
    "are too few for a share of false alarms there is no number."
)


def played(rows: Sequence[Row], control: str = "none") -> list[Row]:
    """The rows of the real game, or of a control."""
    return [row for row in rows if (row.get("control") or "none") == control]


def membership(rows: Sequence[Row]) -> Content:
    """Figure 5, with the attack on f itself beside, and controls."""
    linked = played(pick(rows, attack="linkage"))
    scored = [row for row in rows if row.get("attack") != "linkage"]
    game = played(scored)
    tables = some(
        by_defence(game, AUC, "AUC of membership inference (0.5 is guessing)", folded=False),
        by_defence(game, AT_1, f"{AT_1.name.capitalize()} (0.01 is guessing)", folded=True),
        *(
            by_defence(played(scored, name), AUC, f"Control, AUC: {words}", folded=True)
            for name, words in CONTROLS.items()
        ),
        anything(linked, "Training rows among the counterfactuals", folded=True),
    )
    verdicts = (
        less_than_without_privacy(game, "paper", whose="paper"),
        less_than_without_privacy(game, "functional-surrogate"),
        *(at_chance(game, d) for d in ("paper", "functional-model", "functional-surrogate")),
        *controls(scored),
    )
    return Content(verdicts, tables)


def controls(rows: Sequence[Row]) -> tuple[Verdict, ...]:
    """Whether the attacks see what is there, and nothing where nothing is."""
    calm, caught = {}, {}
    for name in names_of(rows):
        nothing = best_attack(pick(played(rows, "disjoint"), dataset=name))
        if nothing:
            words = f"AUC {nothing[1]:.3f} by *{nothing[0]}*"
            calm[name] = (abs(nothing[1] - CHANCE) <= NOISE, words)
        by_heart = best_attack(pick(played(rows, "overfitted"), dataset=name, target="f"))
        if by_heart:
            caught[name] = (by_heart[1] >= SEEN, f"AUC {by_heart[1]:.3f} by *{by_heart[0]}*")
    found = (
        tally("Control: people who were never trained on are not taken for members", calm,
              f"AUC of the best attack within {NOISE:g} of 0.5"),
        tally("Control: where f knows its rows by heart, the attacks find the members", caught,
              f"AUC of the best attack on f at least {SEEN:g}"),
    )  # fmt: skip
    return tuple(verdict for verdict in found if verdict.state is not State.OPEN)


def by_defence(rows: Sequence[Row], measure: Measure, title: str, *, folded: bool) -> Table | None:
    """One line for each dataset, target and attack, one column a defence."""
    columns = sources(rows)
    order = names_of(rows)
    found = groups(
        [row for row in rows if row.get("dataset") in order],
        lambda row: (order.index(row["dataset"]), word(row, "target"), word(row, "attack")),
    )
    lines, seen = [], []
    for (place, target, attack), mine in sorted(found.items(), key=lambda item: item[0]):
        means = [average(of(mine, source), measure.column) for source in columns]
        if any(means):
            seen += [mean for mean in means if mean]
            head = (dataset_name(order[place]), target, attack)
            lines.append((*map(Cell, head), *(measure.cell(mean) for mean in means)))
    if not lines:
        return None
    names = ("dataset", "attacked", "attack", *map(source_name, columns))
    notes = (SURE, *repeats_note(seen))
    return Table(title, names, tuple(lines), notes, folded, 3).without_empty_columns()


def best_attack(rows: Sequence[Row]) -> tuple[str, float] | None:
    """The strongest attack and its AUC.

    Picked by one half of the people and told of the other, where the rows have both: the largest of
    several noisy numbers is too large.
    """
    halves = any(number(row.get("auc_first")) is not None for row in rows)
    choose, tell = ("auc_first", "auc_second") if halves else ("auc", "auc")
    found = {}
    for attack in distinct(rows, "attack"):
        mine = pick(rows, attack=attack)
        chosen, told = average(mine, choose), average(mine, tell)
        if chosen and told:
            found[str(attack)] = (chosen.value, told.value)
    if not found:
        return None
    name = max(found, key=lambda attack: found[attack][0])
    return name, found[name][1]


def less_than_without_privacy(rows: Sequence[Row], defence: str, whose: str = "ours") -> Verdict:
    """f' from private counterfactuals against f' from others."""
    outcomes = {}
    extracted = pick(rows, target="f'")
    for case, mine, source in cases(extracted, defence):
        ours = best_attack(of(mine, source))
        others = (best_attack(of(mine, s)) for d in NON_DP for s in sources(mine, d))
        theirs = next((best for best in others if best), None)
        if ours and theirs:
            outcomes[case] = (ours[1] < theirs[1], f"AUC {ours[1]:.3f} against {theirs[1]:.3f}")
    return tally(
        f"{DEFENCES.get(defence, defence)}: the extracted f' tells less about members than one "
        "from counterfactuals without privacy",
        outcomes,
        "AUC of the best attack on f' below that without privacy (DiCE, else no noise)",
        whose=whose,
        unit="cases",
    )


def at_chance(rows: Sequence[Row], defence: str) -> Verdict:
    """What the counterfactuals themselves say about members."""
    outcomes = {}
    for case, mine, source in cases(pick(rows, target="cf"), defence):
        if best := best_attack(of(mine, source)):
            outcomes[case] = (best[1] <= CHANCE + NOISE, f"AUC {best[1]:.3f} by *{best[0]}*")
    return tally(
        f"{DEFENCES.get(defence, defence)}: the counterfactuals do not tell members from others",
        outcomes,
        f"AUC of the best attack on the counterfactuals at most {CHANCE + NOISE:g}; so near to 0.5 "
        "it is not told apart from guessing, which proves nothing",
        unit="cases",
    )


def attribute(rows: Sequence[Row]) -> Content:
    """Figure 6, with what the other attributes give away anyway."""
    if not any("advantage" in row for row in rows):
        return Content((), some(anything(rows, "What was measured")))
    controlled = [row for row in rows if (row.get("control") or "none") != "none"]
    rows = played(rows)
    keys = {
        "dataset": lambda row: dataset_name(word(row, "dataset")),
        "counterfactuals by": lambda row: source_name(sources([row])[0]) if row.get("defence")
        else "predictions alone",
        "asked": lambda row: word(row, "target"),
        "people": lambda row: word(row, "who"),
    }  # fmt: skip
    share = Measure("balanced_accuracy", "balanced accuracy, %", 1, "", 100.0)
    without = Measure("imputation", "without any model, %", 1, "", 100.0)
    more = Measure("advantage", "difference, points", 1, "", 100.0)
    values = {**keys, "value": lambda row: word(row, "value")}
    precise = Measure("precision", "precision, %", 1, "", 100.0)
    guessed = Measure("imputation_precision", "without any model, %", 1, "", 100.0)
    single = [row for row in rows if row.get("value") != "all"]
    tables = some(
        by_case(pick(rows, value="all"), keys, (share, without, more), "All values"),
        by_case(single, values, (precise, guessed), "Value by value", folded=True),
        by_case(pick(controlled, value="all"),
                {"control": lambda row: word(row, "control"), **keys},
                (share, without, more), "Controls", folded=True),
    )  # fmt: skip
    outcomes = {}
    members = pick(rows, value="all", who="members")
    ways = [(word(row, "dataset"), word(row, "target")) for row in members]
    for name, target in dict.fromkeys(way for way in ways if way[1] != "f"):
        mine = pick(members, dataset=name, target=target)
        for source in sources(mine):
            mean = average(of(mine, source), "advantage")
            if mean:
                case = f"{dataset_name(name)}, {source_name(source)}, {target}"
                outcomes[case] = (mean.value <= MORE, f"{100 * mean.value:+.1f} points")
    verdict = tally(
        "The extracted f' gives away no attribute beyond what the others tell anyway",
        outcomes,
        f"balanced accuracy for members at most {100 * MORE:g} point above that of the same "
        "classifier without any model",
        unit="cases",
    )
    return Content((verdict,), tables)


def tradeoff(rows: Sequence[Row]) -> Content:
    """Answers that serve a person, and what they serve a thief of f."""
    if not any("margin" in row for row in rows):
        return Content((), some(anything(rows, "What was measured")))
    found = groups(rows, lambda row: (word(row, "dataset"), word(row, "predictions"),
                                      word(row, "guidance"), row.get("margin")))  # fmt: skip
    lines, best_of = [], {}
    for (name, said, guidance, margin), mine in found.items():
        if not all(row.keys() >= NEEDED for row in mine):
            continue
        (line,) = headline(mine).table
        best_of[name, said, guidance, margin] = line["gain"]
        sure = "" if line["half_width"] is None else f" ± {100 * line['half_width']:.1f}"
        head = (dataset_name(name), said, f"`{guidance}`", str(margin))
        lines.append((*map(Cell, head), FLIP.cell(average(mine, "flip_ratio")),
                      AWAY.cell(average(mine, "distance")), Cell(f"{100 * line['base']:.1f}"),
                      Cell(f"{100 * line['gain']:+.1f}{sure}"),
                      Cell(line["attacker"])))  # fmt: skip
    columns = ("dataset", "f answers with", "guidance", "margin", "flip ratio", AWAY.name,
               "predictions alone, %", "gain of the best attacker, points",
               "best attacker")  # fmt: skip
    outcomes = {}
    for (name, said, guidance, margin), value in best_of.items():
        other = best_of.get((name, said, "model", margin))
        if guidance == "surrogate" and other is not None:
            words = f"{100 * value:+.1f} points against {100 * other:+.1f}"
            outcomes[f"{dataset_name(name)}, {said}, margin {margin}"] = (value < other, words)
    verdict = tally(
        "Guidance `surrogate` gives a thief of f less than guidance `model`",
        outcomes,
        "mean agreement with f of the best attacker, less that of as many predictions alone, is "
        "lower at the same margin",
        unit="cases",
    )
    table = Table("Usefulness and theft", columns, tuple(lines), keys=4).without_empty_columns()
    return Content((verdict,), (table,) if lines else ())
