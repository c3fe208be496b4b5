"""Sections on inference attacks, and on what answers serve people and thieves."""

from __future__ import annotations

from collections.abc import Sequence

from counterveil_lab.attacks.controls import of_attribute, of_inference
from counterveil_lab.attacks.headlines import NONE, attribute_table, strongest
from counterveil_lab.attacks.scores import seeds_interval
from counterveil_lab.attacks.verdicts import headline
from counterveil_lab.report.blocks import Cell, Content, Table, Verdict
from counterveil_lab.report.claims import NEEDED, of_controls
from counterveil_lab.report.defended import DEFENCES, names_of, of, source_name, sources
from counterveil_lab.report.numbers import UNSETTLED, average, epsilon_of, groups, pick, word
from counterveil_lab.report.rules import tally
from counterveil_lab.report.tables import FLIP, Measure, anything, by_case, repeats_note, some
from counterveil_lab.report.ways import dataset_name
from counterveil_lab.results import Row

AUC = Measure("auc", "AUC", 3)
AT_1 = Measure("tpr_at_1", "members found at 1 % false alarms", 3)
CHANCE = 0.5
AWAY = Measure("distance", "distance", 2)
SCORED = {"dataset", "control", "defence", "epsilon", "target", "attack", "seed", "auc",
          "auc_first", "auc_second", "auc_second_low", "auc_second_high", "tpr_at_1"}  # fmt: skip
GUESSED = {"dataset", "control", "defence", "epsilon", "target", "who", "seed", "value",
           "advantage", "advantage_low", "advantage_high", "imputation"}  # fmt: skip
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
    whole = [row for row in rows if row.get("attack") == "linkage" or row.keys() >= SCORED]
    told = [row for row in whole if row.get("attack") != "linkage"]
    verdicts = (
        less_than_without_privacy(played(told), "paper", whose="paper"),
        less_than_without_privacy(played(told), "functional-model"),
        *(at_chance(played(told), d) for d in ("paper", "functional-model",
                                               "functional-surrogate")),
        *of_controls(of_inference(whole) if told else []),
    )  # fmt: skip
    return Content(verdicts, tables)


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


def less_than_without_privacy(rows: Sequence[Row], defence: str, whose: str = "ours") -> Verdict:
    """f' from private counterfactuals against f' from those of the same search without noise."""
    without = "no-noise-published" if defence == "paper" else "no-noise"
    lines = strongest(pick(rows, target="f'")) if rows else []
    outcomes = {}
    for line in lines:
        twin = next((one for one in lines if one["defence"] == without
                     and one["dataset"] == line["dataset"]), None)  # fmt: skip
        if line["defence"] != defence or twin is None:
            continue
        pair = [
            {row["seed"]: float(row["auc_second"])
             for row in pick(rows, target="f'", dataset=one["dataset"], defence=one["defence"],
                             attack=one["attack"])
             if epsilon_of(row) in {None, one["epsilon"]}}
            for one in (line, twin)
        ]  # fmt: skip
        mean, low, high = seeds_interval([pair[0][s] - pair[1][s] for s in pair[0] if s in pair[1]])
        words = f"AUC {line['auc']:.3f} against {twin['auc']:.3f}"
        words += UNSETTLED if low <= 0 <= high else ""
        outcomes[_case(line)] = (mean < 0, words)
    return tally(
        f"{DEFENCES.get(defence, defence)}: the extracted f' tells less about members than one "
        "from the same search without noise",
        outcomes,
        "AUC of the strongest attack on f', picked on other people, below that without noise; "
        "settled where the interval of the difference over seeds leaves out 0",
        whose=whose,
        unit="cases",
    )


def at_chance(rows: Sequence[Row], defence: str) -> Verdict:
    """What the counterfactuals themselves say about members."""
    lines = strongest(pick(rows, target="cf")) if rows else []
    outcomes = {}
    for line in lines:
        if line["defence"] == defence:
            words = f"AUC {line['auc']:.3f} [{line['auc_low']:.3f}, {line['auc_high']:.3f}]"
            outcomes[_case(line)] = (line["auc_low"] <= CHANCE <= line["auc_high"],
                                     f"{words} by *{line['attack']}*")  # fmt: skip
    beside = [f"{dataset_name(line['dataset'])} {line['auc']:.3f}"
              for line in lines if line["defence"] == "no-noise"]  # fmt: skip
    aside = f"without any noise {', '.join(beside)}" if beside and outcomes else ""
    return tally(
        f"{DEFENCES.get(defence, defence)}: the counterfactuals do not tell members from others",
        outcomes,
        "the interval of the strongest attack on the counterfactuals holds 0.5; where that is so "
        "without noise too, it is no evidence for the noise",
        unit="cases",
        aside=aside,
    )


def _case(line: Row) -> str:
    epsilon = "" if line["epsilon"] == NONE else f", ε {line['epsilon']:g}"
    return f"{dataset_name(line['dataset'])}{epsilon}"


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
    for line in attribute_table([row for row in rows if row.keys() >= GUESSED]):
        if line["who"] == "members" and line["target"] != "f":
            case = f"{_case(line)}, {DEFENCES.get(line['defence'], line['defence'])}"
            low, high = 100 * line["advantage_low"], 100 * line["advantage_high"]
            words = f"{100 * line['advantage']:+.1f} points [{low:+.1f}, {high:+.1f}]"
            outcomes[f"{case}, {line['target']}"] = (line["advantage_low"] <= 0, words)
    verdict = tally(
        "The extracted f' gives away no attribute beyond what the others tell anyway",
        outcomes,
        "the interval of what members lose beyond the same classifier without any model does not "
        "lie above 0",
        unit="cases",
    )
    control = of_controls(of_attribute([row for row in controlled if row.keys() >= GUESSED]))
    return Content((verdict, *control), tables)


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
