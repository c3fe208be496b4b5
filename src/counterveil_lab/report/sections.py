"""Tables and claims as sections.toml has them, and the rows that the tables are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from counterveil_lab import paper_values
from counterveil_lab.attacks.extraction import ATTACKERS, BASES
from counterveil_lab.experiments.answers import OVER_EPSILON
from counterveil_lab.report import attacks, claims, frames, pivots
from counterveil_lab.report.claims import Claim
from counterveil_lab.report.frames import select, with_values
from counterveil_lab.report.pivots import Table, table_of, table_of_texts

Spec = Mapping[str, Any]
AT_DELTA = ["dataset", "delta", "epsilon"]
SETTINGS = {
    "known architecture": ("known", "probabilities"),
    "unknown architecture": ("unknown", "probabilities"),
    "known architecture, f names its class alone": ("known", "labels"),
}


def claims_of(spec: Spec) -> list[Claim]:
    """The claims of an entry: a control, or what the entry says."""
    if "control" in spec:
        return [attacks.control_claim(spec["control"])]
    return claims.claims_of(spec, {**claims.DECIDERS, **attacks.DECIDERS})


def tables_of(spec: Spec, frame: pd.DataFrame) -> list[Table]:
    """The tables of an entry: one, or one for each setting of model extraction; none if empty."""
    if "made" in spec:
        made = [TABLES[spec["made"]](frame)]
    elif "settings" in spec:
        made = []
        for words, (architecture, predictions) in SETTINGS.items():
            rows = select(frame, architecture=architecture, predictions=predictions)
            title = spec["title"].format(settings=words)
            folded = spec.get("folded", False) or len(made) > 0
            made.append(table_of(rows_of(spec, rows), pivot_of(spec, title, folded)))
    else:
        pivot = pivot_of(spec, spec.get("title", ""), spec.get("folded", False))
        made = [table_of(rows_of(spec, frame), pivot)]
    shown = spec.get("shown", "report")
    return [replace(table, shown=shown) for table in made if table and table.rows]


def pivot_of(spec: Spec, title: str, folded: bool) -> pivots.Pivot:
    """The pivot of an entry; `by_dataset`: a line for each method, a column for each dataset."""
    by_dataset = {
        "index": {"method": "method name", "ε": "ε", "guarantee": "guarantee"},
        "columns": ("dataset name", "dataset place"),
        "sort": ("method place",),
        "measures": [spec.get("by_dataset")],
    }
    chosen = {**(by_dataset if "by_dataset" in spec else {}), **spec}
    measures = [pivots.Measure(**frames.SECTIONS["measure"][name]) for name in chosen["measures"]]
    columns, sort = chosen.get("columns"), tuple(chosen.get("sort", ()))
    return pivots.Pivot(title, chosen["index"], measures, columns and tuple(columns), sort, folded)


def rows_of(spec: Spec, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of an entry: those with the values named, or what a function of this file makes."""
    wanted = spec.get("rows", {})
    return ROWS[wanted["made"]](frame) if "made" in wanted else select(frame, **wanted)


def value_of(spec: Spec, frame: pd.DataFrame) -> str:
    """The number of an entry of [value] as text, "" where no row has it."""
    column = spec["column"]
    rows = with_values(select(frame, **spec.get("rows", {})), [column]).astype({column: float})
    if rows.empty:
        return ""
    numbers = rows.groupby(spec["by"])[column].mean() if "by" in spec else rows[column]
    return format(spec.get("scale", 1) * numbers.agg(spec.get("take", "mean")), spec["style"])


def behind(spec: Spec, frame: pd.DataFrame) -> pd.DataFrame:
    """The stored rows that an entry is made of; all of them where a function makes new ones."""
    wanted = spec.get("rows", {})
    if wanted.get("made") in PICKING:
        return frame.loc[ROWS[wanted["made"]](frame).index]
    return frame if "made" in wanted else select(frame, **wanted)


def with_training_mean(frame: pd.DataFrame) -> pd.DataFrame:
    """The error of answering the mean of the training rows as a method of its own."""
    lines = with_values(frame, ["mse_of_pooled_mean"])
    names = {"method name": "mean of the training rows", "ε": "–", "guarantee": ""}
    lines = lines.assign(mse=lines.get("mse_of_pooled_mean"), **names)
    return pd.concat([_placed(lines, "method place"), frame])


def _placed(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows that come before all others in the order of a column."""
    return frame.assign(**{column: pd.Series([(-1.0,)] * len(frame), frame.index, object)})


def latest_run(frame: pd.DataFrame) -> pd.DataFrame:
    """Times compare inside one run of the command: the latest of each dataset."""
    rows = with_values(frame, ["dataset", "seconds_for_ten", "run"])
    latest: Any = rows.run == rows.groupby("dataset").run.transform("max") if len(rows) else []
    return pd.concat(
        [rows[latest].assign(seconds=rows.seconds_for_ten), select(frame, part=OVER_EPSILON)]
    )


def every_attacker(frame: pd.DataFrame) -> pd.DataFrame:
    """What every attacker reaches with the most queries that a defence was attacked with."""
    order = [*BASES, *ATTACKERS]
    rows = with_values(select(frame, attacker=order), ["dataset", "queries"])
    if rows.empty:
        return rows
    rows = rows[rows.queries == rows.groupby(["dataset", "defence name"]).queries.transform("max")]
    return rows.assign(**{"attacker place": rows.attacker.map(partial(frames.place_in, order))})


def believing(frame: pd.DataFrame) -> pd.DataFrame:
    """The naive attacker of each defence, and predictions alone as a defence of their own."""
    base = select(frame, attacker="base-n")
    base = base[base.defence != "dp-model"] if len(base) else base  # there f is another
    columns = ["dataset", "architecture", "predictions"]
    printed = [
        paper_values.extraction(name, "none", None, kind, 0) if said == "probabilities" else ""
        for name, kind, said in base.reindex(columns=columns).itertuples(index=False)
    ]
    base = base.assign(**{"defence name": "`none`", "printed accuracy": printed})
    return pd.concat([_placed(base, "defence place"), select(frame, attacker="naive")])


def table_4(frame: pd.DataFrame) -> pd.DataFrame:
    """What the paper's Table 4 has: predictions alone, counterfactuals without privacy, `paper`."""
    rows = select(believing(frame), architecture="known", predictions="probabilities")
    alone = rows[rows.attacker == "base-n"] if len(rows) else rows
    return pd.concat([alone, select(rows, attacker="naive", defence=["no-noise", "paper"])])


def single_values(frame: pd.DataFrame) -> pd.DataFrame:
    rows = with_values(select(frame, control="none"), ["value"])
    return rows[rows.value != "all"] if len(rows) else rows


def strongest_finding(frame: pd.DataFrame) -> pd.DataFrame:
    """The game with the largest bound against each claim."""
    rows = with_values(frame, ["mechanism", "claimed_epsilon", "bound", "view"])
    best = rows.groupby(["mechanism", "claimed_epsilon"], sort=False).bound.idxmax()
    return rows.loc[[at for at in best if not rows["view"][at].startswith("tree")]]


def largest_call(frame: pd.DataFrame) -> pd.DataFrame:
    """Our search and other methods, all queries in one call."""
    rows = with_values(select(frame, part="peers"), ["batch"])
    return rows[rows.batch == rows.batch.max()] if len(rows) else rows


def timed_once(frame: pd.DataFrame) -> pd.DataFrame:
    """The same; quality is over seeds, time that of the first seed."""
    rows = largest_call(frame)
    guidance = rows.guidance.map({"surrogate": ", guidance `surrogate`"}).fillna("")
    first = rows.where(rows.seed == 0)
    times = {"first_seconds": first.seconds_per_query, "first_times": first.times_counterveil}
    return rows.assign(**{"method and guidance": rows.method + guidance}, **times)


def both_guidances(frame: pd.DataFrame) -> pd.DataFrame:
    """`functional` with guidance `model`; the flip ratio of the other guidance, with its spread."""
    rows = select(frame, mechanism="functional", search="full")
    rows = rows[rows.dataset != "digits"]
    surrogate = rows.guidance == "surrogate"
    rows = rows.assign(surrogate_flip_ratio=rows.flip_ratio.where(surrogate))
    over_seeds = rows.groupby(["dataset", "epsilon"]).surrogate_flip_ratio
    rows = rows.assign(
        surrogate_least=over_seeds.transform("min"), surrogate_most=over_seeds.transform("max")
    )
    shown = ("flip_ratio", "flip_ratio_specified", "distance", "legal")
    masked = {name: rows[name].mask(surrogate) for name in shown}
    return rows.assign(**masked)


def refused_people(frame: pd.DataFrame) -> pd.DataFrame:
    """Believable answers to people of Adult, and how often f agrees where it was not consulted."""
    rows = select(
        frame, dataset="adult", kind="network", mechanism="functional", prefer="believable"
    )
    surrogate = rows.guidance == "surrogate"
    rows = rows.assign(surrogate_flip_ratio=rows.flip_ratio.where(surrogate))
    masked = {name: rows[name].mask(surrogate) for name in ("flip_ratio", "boosted", "near")}
    return rows.assign(**masked)


def over_draws(frame: pd.DataFrame, column: str, by: Sequence[str]) -> pd.DataFrame:
    """A row for each combination of `by`: means over draws, the tenth percentile, the worst."""
    rows = with_values(frame, ["draw", column])
    if rows.empty:
        return rows
    groups = rows.groupby(list(by), sort=False, dropna=False)
    first = groups[["dataset name", "dataset place", "ε"]].first()
    numbers = groups.mean(numeric_only=True).drop(columns=["dataset place"], errors="ignore")
    found = numbers.join(first).assign(
        tenth=groups[column].quantile(0.1), worst=groups[column].min(), draws=groups.size()
    )
    return found.reset_index()


def best_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Each method with the setting that agrees most with f, chosen for each dataset and ε."""
    by = [*AT_DELTA, "method"]
    rows = over_draws(frame, "agreement", [*by, "batch", "clip"])
    return rows if rows.empty else rows.loc[rows.groupby(by, sort=False).agreement.idxmax()]


ROWS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "with_training_mean": with_training_mean,
    "latest_run": latest_run,
    "every_attacker": every_attacker,
    "believing": believing,
    "single_values": single_values,
    "table_4": table_4,
    "strongest_finding": strongest_finding,
    "largest_call": largest_call,
    "timed_once": timed_once,
    "both_guidances": both_guidances,
    "refused_people": refused_people,
    # How good the private model of a veil is; how true P~ is, also with wide bounds; what answers
    # from the veil alone are worth, for each model that they are shown to.
    "private_models": lambda frame: over_draws(select(frame, bounds=1.0), "agreement", AT_DELTA),
    "populations": lambda frame: over_draws(frame, "worst_number", [*AT_DELTA, "bounds"]),
    "best_settings": best_settings,
    "private_answers": lambda frame: over_draws(frame, "flip_ratio", [*AT_DELTA, "asked"]),
}
# They pick among stored rows, and may give them new columns.
PICKING = {"latest_run", "refused_people", "largest_call", "timed_once"}


def faults(frame: pd.DataFrame) -> Table:
    """Planted faults, and what the audit found of each."""
    heads = ("fault", "what it breaks", "caught by", "by one alone", "what was found")
    columns = ["fault", "breaks", "caught_by", "alone", "finding"]
    shown = frame.reindex(columns=columns).astype(object).fillna("")
    shown["alone"] = ["yes" if alone is True else "" for alone in shown["alone"]]
    lines = shown[~shown["fault"].str.startswith("none")].itertuples(index=False, name=None)
    return table_of_texts("Planted faults", heads, lines)


TABLES = {**attacks.TABLES, "faults": faults}
