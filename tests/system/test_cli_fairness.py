"""`counterveil fairness` as a person meets it."""

import json

import pytest
from commands import assert_refused

from counterveil.search import fairness

ASK = ("fairness", "--veil", "loans.veil", "--groups", "member", "--target", "granted")


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    for name, value in {"DRAWN": 2000, "DRAWS": 1, "AGAIN": 2, "ANSWERED": 40}.items():
        monkeypatch.setattr(fairness, name, value)


def test_fairness_of_people_of_the_veil_and_of_a_table(does, world):
    out, _ = does(*ASK, "--max-changes", 1, "--out", "page.html")
    assert "drawn from the veil" in out
    assert "refused" in (world / "page.html").read_text()
    out, err = does(*ASK, "--data", "rows.csv", "--max-changes", 1, "--json")
    assert "PRIVATE" in err
    assert json.loads(out)["private"]


def test_refusals(run, world):
    assert_refused(run(*ASK, "--groups", "age"), "is a number")
    assert_refused(run(*ASK, "--target", "perhaps"), "which class people want")
    assert_refused(run(*ASK, "--out", "page.pdf"), ".html")
