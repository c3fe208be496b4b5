"""Write tables of stored results into README.md and docs/. Run it after experiments.

python tools/quote_results.py
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from counterveil_lab.attacks.headlines import attribute_table, linked, strongest
from counterveil_lab.attacks.verdicts import headline
from counterveil_lab.results import Row, stored_rows

ROOT = Path(__file__).parent.parent
DATASETS = ("adult", "hospital", "homecredit", "mnist", "purchase-substitute", "texas-substitute")


def table_fr() -> str:
    """Flip ratios of every method; the lab has written the table."""
    lines = (ROOT / "results/table-fr.md").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def frontier() -> str:
    """Mechanism `functional` on every dataset."""
    rows = pd.read_csv(ROOT / "results/frontier.csv")
    rows = rows[rows.asked_order.isna() & (rows.mechanism == "functional")]
    lines = [
        "| dataset | ε | flip ratio | specified class | distance | legal rows | "
        "flip ratio, guidance `surrogate` |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in DATASETS:
        for epsilon in sorted(rows[rows.dataset == name].epsilon.unique()):
            here = rows[(rows.dataset == name) & (rows.epsilon == epsilon)]
            model = here[here.guidance == "model"].mean(numeric_only=True)
            surrogate = here[here.guidance == "surrogate"].mean(numeric_only=True)
            specified = model.flip_ratio_specified
            lines.append(
                f"| {name} | {epsilon:g} | {model.flip_ratio:.3f} | "
                f"{'' if pd.isna(specified) else f'{specified:.3f}'} | {model.distance:.2f} | "
                f"{model.legal:.3f} | {surrogate.flip_ratio:.3f} |"
            )
    return "\n".join(lines)


def objective() -> str:
    """Where the amortised search ends, beside Algorithm 2."""
    rows = pd.read_csv(ROOT / "results/bench-search.csv")
    rows = rows[rows.part == "objective"]
    names = {"amortised": "amortised", "amortised, refined": "amortised + 60 iterations",
             "algorithm-2": "Algorithm 2, 300 iterations",
             "amortised, whole": "whole answers, amortised",
             "algorithm-2, whole": "whole answers, Algorithm 2"}  # fmt: skip
    lines = [
        "| dataset | search | mean objective | flip ratio | distance |",
        "|---|---|---|---|---|",
    ]
    means = rows.groupby(["dataset", "method"], sort=False)[["objective", "flip_ratio", "distance"]]
    for row in means.mean().reset_index().itertuples():
        reached = "" if pd.isna(row.objective) else f"{row.objective:.3f}"
        lines.append(
            f"| {row.dataset} | {names[row.method]} | {reached} | "
            f"{row.flip_ratio:.3f} | {row.distance:.2f} |"
        )
    return "\n".join(lines)


def peers() -> str:
    """counterveil beside other methods, one run."""
    rows = pd.read_csv(ROOT / "results/bench-search.csv")
    rows = rows[(rows.part == "peers") & (rows.batch == 500)]
    keys = ["method", "guidance", "epsilon"]
    means = rows.groupby(keys, dropna=False, sort=False).mean(numeric_only=True)
    timed = rows[rows.seed == 0].set_index(keys)  # quality is over seeds, time of one run
    lines = [
        "| method | ε | ms a query | times ours | flip ratio | legal rows | distance | "
        "changed features |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (method, guidance, epsilon), row in means.iterrows():
        time = timed.loc[[(method, guidance, epsilon)]].iloc[0]
        way = ", guidance `surrogate`" if guidance == "surrogate" else ""
        lines.append(
            f"| {method}{way} | {'' if pd.isna(epsilon) else f'{epsilon:g}'} | "
            f"{1000 * time.seconds_per_query:.3g} | {time.times_counterveil:,.1f} | "
            f"{row.flip_ratio:.3f} | {row.legal:.3f} | {row.distance:.2f} | "
            f"{row.changed_features:.2f} |"
        )
    return "\n".join(lines)


ATTACKED = ("adult", "hospital", "mnist")
DEFENCES = ("none", "functional-model", "functional-surrogate", "elsewhere-surrogate", "paper",
            "no-noise", "no-noise-published", "dice-gradient", "dice-kdtree", "cf-k", "dp-model",
            "random-labels", "random-labels-surrogate")  # fmt: skip


def place(line: Row) -> tuple[int, int, float]:
    """Where a defence comes in a table."""
    return ATTACKED.index(line["dataset"]), DEFENCES.index(line["defence"]), line["epsilon"] or -1


def name(line: Row) -> str:
    """A defence with its ε."""
    known = line["epsilon"] is not None and line["epsilon"] > 0
    return f"`{line['defence']}`" + (f", ε {line['epsilon']:g}" if known else "")


def extraction() -> str:
    """What the strongest thief gains on every defence, in points of fidelity."""
    lines = headline(stored_rows(ROOT / "results", "table-extraction")).table
    by_case: dict[tuple[tuple[int, int, float], str, str], dict[str, Row]] = {}
    for line in lines:
        key = place(line), line["dataset"], name(line)
        by_case.setdefault(key, {})[line["predictions"]] = line
    table = [
        "| dataset | counterfactuals | seeds | class alone: base, % | gain, points | picked on "
        "other seeds | strongest | probabilities: base, % | gain, points | picked on other seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (_, dataset, defence), both in sorted(by_case.items()):
        labels, proba = both["labels"], both["probabilities"]
        way = f"{labels['attacker']}, {labels['queries']}"
        table.append(
            f"| {dataset} | {defence} | {labels['seeds']} | {100 * labels['base']:.1f} | "
            f"{_points(labels, 'gain', 'half_width')} | "
            f"{_points(labels, 'unseen', 'unseen_half_width')} | {way} | "
            f"{100 * proba['base']:.1f} | {_points(proba, 'gain', 'half_width')} | "
            f"{_points(proba, 'unseen', 'unseen_half_width')} |"
        )
    return "\n".join(table)


def _points(line: Row, value: str, half: str) -> str:
    if line[value] is None:
        return ""
    return f"{100 * line[value]:+.1f}" + (
        "" if line[half] is None else f" ± {100 * line[half]:.1f}"
    )


def tradeoff() -> str:
    """Gains over the margin, for both guidances."""
    ways: dict[tuple[str, float], list[Row]] = {}
    for row in stored_rows(ROOT / "results", "fig-tradeoff"):
        ways.setdefault((row["guidance"], row["margin"]), []).append(row)
    table = [
        "| guidance | margin | flip ratio | distance | gain from classes, points | gain from "
        "probabilities, points |",
        "|---|---|---|---|---|---|",
    ]
    for (guidance, margin), rows in ways.items():
        lines = {line["predictions"]: line for line in headline(rows).table}
        worth = pd.DataFrame(rows)[["flip_ratio", "distance"]].mean()
        gains = (_points(lines[said], "gain", "half_width") for said in ("labels", "probabilities"))
        table.append(f"| `{guidance}` | {margin:g} | {worth.flip_ratio:.3f} | "
                     f"{worth.distance:.2f} | {' | '.join(gains)} |")  # fmt: skip
    return "\n".join(table)


def membership() -> str:
    """The strongest attack on f, on f' and on counterfactuals; linkage beside."""
    rows = stored_rows(ROOT / "results", "fig-membership")
    found: dict[tuple[tuple[int, int, float], str, str, str], dict[str, str]] = {}
    for line in [*strongest(rows), *linked(rows)]:
        key = place(line), line["dataset"], line["control"], name(line)
        if "auc" in line:
            value = f"{line['auc']:.3f} [{line['auc_low']:.3f}, {line['auc_high']:.3f}]"
            found.setdefault(key, {})[line["target"]] = value
        else:
            low, high = (line[f"exact_excess_{end}"] for end in ("low", "high"))
            found.setdefault(key, {})["linkage"] = (
                f"{100 * line['exact_excess']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
            )
    table = [
        "| dataset | control | counterfactuals | f | f' | counterfactuals themselves | "
        "linkage, points |",
        "|---|---|---|---|---|---|---|",
    ]
    controls = ("none", "disjoint", "overfitted")
    for key, cells in sorted(found.items(), key=lambda one: (
        one[0][0][0], controls.index(one[0][2]), one[0][0]
    )):  # fmt: skip
        _, dataset, control, defence = key
        shown = (cells.get(target, "") for target in ("f", "f'", "cf", "linkage"))
        table.append(f"| {dataset} | {'' if control == 'none' else control} | {defence} | "
                     f"{' | '.join(shown)} |")  # fmt: skip
    return "\n".join(table)


def attributes() -> str:
    """What a model gives away about `race` beyond imputation: members, and people it never saw."""
    found: dict[tuple[tuple[int, int, float], str, str, str], dict[tuple[str, str], str]] = {}
    for line in attribute_table(stored_rows(ROOT / "results", "fig-attribute")):
        key = place(line), line["dataset"], line["control"], name(line)
        found.setdefault(key, {})[line["target"], line["who"]] = (
            f"{100 * line['advantage']:+.1f} [{100 * line['advantage_low']:+.1f}, "
            f"{100 * line['advantage_high']:+.1f}]"
        )
    ways = [("f", "members"), ("f", "outsiders"), ("f'", "members"), ("f'", "outsiders"),
            ("f' relabel", "members"), ("f' relabel", "outsiders")]  # fmt: skip
    heads = " | ".join(f"{target}, {'members' if who == 'members' else 'others'}"
                       for target, who in ways)  # fmt: skip
    table = [f"| dataset | control | counterfactuals | {heads} |", "|---" * (3 + len(ways)) + "|"]
    controls = ("none", "disjoint", "overfitted", "memoriser")
    for key, cells in sorted(found.items(), key=lambda one: (
        one[0][0][0], controls.index(one[0][2]), one[0][0]
    )):  # fmt: skip
        _, dataset, control, defence = key
        shown = " | ".join(cells.get(way, "") for way in ways)
        table.append(
            f"| {dataset} | {'' if control == 'none' else control} | {defence} | {shown} |"
        )
    return "\n".join(table)


def quote(text: str, name: str, table: Callable[[], str]) -> str:
    """`text` with the table called `name` made anew."""
    start, end = f"<!-- results:{name} -->\n", f"<!-- end:{name} -->"
    head, rest = text.split(start)
    return f"{head}{start}{table()}\n{end}{rest.split(end, 1)[1]}"


PLACES = {
    "README.md": {"frontier": frontier, "table-fr": table_fr, "peers": peers},
    "docs/method.md": {"objective": objective},
    "docs/red-team.md": {"extraction": extraction, "tradeoff": tradeoff, "membership": membership,
                         "attributes": attributes},
}  # fmt: skip
for where, tables in PLACES.items():
    path = ROOT / where
    content = path.read_text()
    for mark, make in tables.items():
        content = quote(content, mark, make)
    path.write_text(content)
