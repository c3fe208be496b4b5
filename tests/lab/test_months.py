"""The generated table: no row breaks a rule of its process, and each broken rule is seen."""

import pandas as pd
import pytest

from counterveil.encoding import Encoding
from counterveil_lab import months
from counterveil_lab.believability import Reality
from counterveil_lab.datasets import load
from counterveil_lab.percentiles import Percentiles

PEOPLE = months.table(rows=4000, seed=3)
NAMES = list(months.SCHEMA.columns)


def one_person(**changes):
    """Somebody who owes 1,000 of 10,000 and pays half of it in every month, but for `changes`."""
    same = {"status": "in part", "bill": 1000, "paid": 500}
    row = {f"{name}_{n}": v for name, v in same.items() for n in months.MONTHS}
    head = {"limit": 10_000, "sex": "male", "age": 40, "education": "basic", "family": "single"}
    return pd.DataFrame([{**head, **row, **changes}])[NAMES]


def test_no_row_of_the_process_is_impossible_and_a_seed_makes_the_same_people():
    for seed in range(5):
        assert not months.impossible_steps(months.table(rows=4000, seed=seed)).any()
    assert not months.impossible_steps(one_person()).any()


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"status_6": "one late", "paid_6": 250}, set()),  # one step, and what it allows
        ({"status_6": "two late", "paid_6": 100}, {"status_5", "status_6"}),
        ({"status_6": "in full"}, {"status_6", "bill_6", "paid_6"}),  # half is not in full
        ({"paid_2": 1001}, {"status_2", "bill_2", "paid_2"}),
        ({"bill_6": 1600, "paid_6": 800}, set()),
        ({"bill_6": 1700, "paid_6": 800}, {"bill_5", "bill_6"}),
        ({"bill_1": 600, "paid_1": 300}, {"bill_1", "bill_2"}),
        ({"limit": 1000}, set()),
        ({"limit": 800}, {"limit", *(f"bill_{n}" for n in months.MONTHS)}),
        ({"age": 80, "education": "university"}, set()),
    ],
)
def test_each_broken_rule_is_seen_with_those_who_take_part(changes, parts):
    (found,) = months.impossible_steps(one_person(**changes))
    assert {name for name, broken in zip(NAMES, found, strict=True) if broken} == parts

    pd.testing.assert_frame_equal(PEOPLE, months.table(rows=4000, seed=3))
    assert not PEOPLE.equals(months.table(rows=4000, seed=4))
    assert len(months.table(rows=7, seed=0)) == 7


def test_rows_fit_the_schema_and_months_depend_on_each_other():
    points = Encoding(months.SCHEMA).encode(PEOPLE)
    assert 0 <= points.min() <= points.max() <= 1
    assert 0.15 < (PEOPLE["default"] == "yes").mean() < 0.3
    pairs = Percentiles(months.SCHEMA, PEOPLE).dependent
    assert {(NAMES.index(f"bill_{n}"), NAMES.index(f"bill_{n + 1}")) for n in range(1, 6)} <= set(
        pairs
    )
    late = PEOPLE["status_6"].isin(months.STATUSES[2:])
    defaults = PEOPLE["default"] == "yes"
    assert defaults[late].mean() > 3 * defaults[~late].mean()


@pytest.mark.long
def test_an_impossible_change_counts_and_what_was_so_before_does_not():
    reality = Reality(load("months"), "no")
    query = one_person(status_1="three late")
    answers = {"bill_1": 1300, "bill_6": 1200, "age": 41, "status_2": "in full"}
    told = [reality.judge(query, query.assign(**{k: v}))["impossible"] for k, v in answers.items()]
    # The payment of a late month was too large before, but its bill now takes part in that.
    assert told == [1.0, 0.0, 0.0, 1.0]
