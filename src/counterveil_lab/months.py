"""A loan table with six months of bills, made by a process whose rules are known.

Real tables do not tell which rows cannot be. Here `impossible_steps` knows: it has the rules that
no row of the process breaks. Month 1 is the first, month 6 the last.

- A **bill** is a share of the limit that moves on a log scale: each month a part of the way back to
  the person's own level, with noise, at most by the factor 1.6, and at most to 1.2 times the limit.
- A **status** is one of five, from paid in full to three late, and moves at most one step a month;
  who uses much of the limit moves up more often.
- A **payment** is the share of the month's bill that the status allows.

Who was late, the more so of late, and who uses much of the limit, defaults more often.

>>> people = table(rows=1000, seed=0)
>>> int(impossible_steps(people).sum())
0
>>> bool(impossible_steps(people.head(1).assign(paid_3=10**5))[0, SCHEMA.columns.index("paid_3")])
True
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.schema import Categorical, Label, Numeric, Schema

ROWS = 30_000
MONTHS = range(1, 7)
STATUSES = ("in full", "in part", "one late", "two late", "three late")
SHARES = ((0.7, 1.0), (0.1, 0.9), (0.0, 0.3), (0.0, 0.2), (0.0, 0.1))  # paid of a bill, by status
SCHOOLS = ("basic", "secondary", "college", "university")
FAMILIES = ("single", "married", "divorced")
MOST_STEP = 1.6  # from a bill to the next one, or back
MOST_USE = 1.2  # of the limit
BACK = 0.15  # of the way to the person's own level, each month
LIMITS = (1_000, 50_000)
PERSONAL = ("sex", "age", "education", "family")
NOTE = "Made by a process whose rules are known; the bounds and lists are part of its definition."


def _schema() -> Schema:
    most = round(MOST_USE * LIMITS[1])
    by_month: list[Categorical | Numeric] = [
        *(Categorical(name=f"status_{n}", categories=STATUSES, ordered=True) for n in MONTHS),
        *(Numeric(name=f"bill_{n}", lower=0, upper=most, integer=True) for n in MONTHS),
        *(Numeric(name=f"paid_{n}", lower=0, upper=most, integer=True) for n in MONTHS),
    ]
    return Schema(
        name="months",
        note=NOTE,
        label=Label(name="default", classes=("no", "yes")),
        features=(
            Numeric(name="limit", lower=LIMITS[0], upper=LIMITS[1], integer=True),
            Categorical(name="sex", categories=("female", "male")),
            Numeric(name="age", lower=18, upper=80, integer=True),
            Categorical(name="education", categories=SCHOOLS, ordered=True),
            Categorical(name="family", categories=FAMILIES),
            *by_month,
        ),
    )


SCHEMA = _schema()


def table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """So many people with the label; a smaller table is no part of a larger one."""
    dice = np.random.default_rng(seed)
    age = np.clip(18 + dice.gamma(3.0, 6.5, rows), 18, 80).astype(int)
    school = np.clip(dice.normal(1.6 - (age > 55) * 0.5, 0.9), 0, 3).round().astype(int)
    settled = np.clip((age - 18) / 30, 0.05, 1)
    family = np.where(dice.random(rows) < 0.8 * settled, 1 + (dice.random(rows) < 0.2), 0)
    worth = 8.2 + 0.35 * school + 0.5 * settled + dice.normal(0, 0.55, rows)
    limit = np.clip(np.exp(worth) // 500 * 500, *LIMITS).astype(int)
    risk = dice.normal(0.6 - 0.25 * school, 1.1)
    level = np.log(0.3) + 0.25 * risk + dice.normal(0, 0.8, rows)
    use, furthest = level + dice.normal(0, 0.4, rows), np.log(MOST_USE)
    use = np.clip(use, np.log(0.01), furthest)
    status = np.clip(np.round(0.7 + 0.8 * risk + dice.normal(0, 0.5, rows)), 0, 4).astype(int)
    columns: dict[str, Array] = {}
    points = np.zeros(rows)  # towards a default
    for month in MONTHS:
        if month > 1:
            step = BACK * (level - use) + dice.normal(0, 0.15, rows)
            step = np.clip(step, -np.log(MOST_STEP), np.log(MOST_STEP))
            use = np.clip(use + step, np.log(0.01), furthest)
            pull = 0.5 * risk + 0.5 * (np.exp(use) - 0.4) - 0.35 * (status - 1.2)
            up, down = (1 / (1 + np.exp(2.0 - way)) for way in (pull, -pull))
            moves = (dice.random(rows) < up).astype(int) - (dice.random(rows) < down)
            status = np.clip(status + moves, 0, len(STATUSES) - 1)
        low, high = np.array(SHARES)[status].T
        bill = np.round(limit * np.exp(use)).astype(int)
        share = low + (high - low) * dice.beta(1.5, 1.5, rows)
        columns[f"status_{month}"] = np.array(STATUSES, dtype=object)[status]
        columns[f"bill_{month}"] = bill
        columns[f"paid_{month}"] = np.floor(share * bill).astype(int)
        points += np.maximum(status - 1, 0) * month / 10
    odds = -3.0 + 1.2 * points + 1.6 * (np.exp(use) - 0.4) + dice.logistic(0, 0.7, rows)
    columns |= {
        "limit": limit,
        "sex": dice.choice(np.array(["female", "male"], dtype=object), rows),
        "age": age,
        "education": np.array(SCHOOLS, dtype=object)[school],
        "family": np.array(FAMILIES, dtype=object)[family],
        "default": np.where(odds > 0, "yes", "no"),
    }
    return pd.DataFrame(columns)[[*SCHEMA.columns, "default"]]


def impossible_steps(rows: pd.DataFrame) -> Array:
    """Which features take part in something that the process never does: bool (rows, features).

    A row is impossible where any of them does. What rounding to whole numbers does is possible.
    """
    names = list(SCHEMA.columns)
    found = np.zeros((len(rows), len(names)), dtype=bool)

    def broken(is_broken: Array, *features: str) -> None:
        for name in features:
            found[:, names.index(name)] |= is_broken

    place = {status: number for number, status in enumerate(STATUSES)}
    limit = rows["limit"].to_numpy(float)
    for month in MONTHS:
        status, bill, paid = (f"{each}_{month}" for each in ("status", "bill", "paid"))
        now, owed = rows[status].map(place).to_numpy(int), rows[bill].to_numpy(float)
        low, high = np.array(SHARES)[now].T * owed
        broken(owed - 0.5 > MOST_USE * limit, bill, "limit")
        given = rows[paid].to_numpy(float)
        broken((given + 1 < low) | (given - 0.5 > high), status, bill, paid)
        if month > 1:
            last_status, last_bill = f"status_{month - 1}", f"bill_{month - 1}"
            broken(np.abs(now - rows[last_status].map(place)) > 1, last_status, status)
            before = rows[last_bill].to_numpy(float)
            least, most = np.minimum(before, owed), np.maximum(before, owed)
            broken(most - 0.5 > MOST_STEP * (least + 0.5), last_bill, bill)
    return found
