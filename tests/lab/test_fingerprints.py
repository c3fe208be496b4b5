"""Fingerprints: words change nothing, code does; every stored row of new runs has one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterveil_lab import fingerprints
from counterveil_lab.experiments.table import EXPERIMENTS
from counterveil_lab.fingerprints import GROUPS, fingerprint, meaning, modules
from counterveil_lab.results import Results, earlier

SOURCE = '''
"""A module."""
def double(number):  # twice as much
    """Two times a number."""
    return 2 * number
'''


def test_words_and_layout_change_nothing_and_code_does() -> None:
    other = SOURCE.replace("twice as much", "").replace("Two times", "Double").replace("2 *", "2*")
    assert meaning(other) == meaning(SOURCE)
    assert meaning(SOURCE.replace("2 *", "3 *")) != meaning(SOURCE)
    assert meaning("x = 'a'") != meaning("x = 'b'")  # a text that is used is code


def test_every_experiment_is_listed_with_modules_that_are_there() -> None:
    assert set(EXPERIMENTS) <= set(fingerprints.EXPERIMENTS)
    places = [place for group in GROUPS.values() for place in group]
    places += [f"counterveil_lab/{own}" for _, each in fingerprints.EXPERIMENTS.values()
               for own in each]  # fmt: skip
    for place in places:
        assert modules(place), place
        assert all(path.is_file() for path in modules(place)), place
    for folder, names in fingerprints.NO_NUMBERS.items():
        assert all((fingerprints.SOURCE / folder / f"{name}.py").is_file() for name in names)


def test_a_changed_module_changes_the_experiments_that_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "counterveil_lab/experiments/over_epsilon.py"
    judges = [tmp_path / place for place in GROUPS["measure"]]
    for path in (own, *judges):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
    monkeypatch.setattr(fingerprints, "SOURCE", tmp_path)

    def now() -> str | None:
        fingerprint.cache_clear()
        fingerprints._meaning_of.cache_clear()
        return fingerprint("targets")

    try:
        first = now()
        assert first
        assert len(first) == fingerprints.LENGTH
        judges[0].write_text(SOURCE.replace("Two", "2"))
        assert now() == first
        judges[0].write_text(SOURCE.replace("2 *", "3 *"))
        assert now() != first
    finally:
        fingerprint.cache_clear()
        fingerprints._meaning_of.cache_clear()


def test_stored_rows_carry_the_fingerprint(tmp_path: Path) -> None:
    Results(tmp_path, "targets", "command").add({"accuracy": 0.8})
    (row,) = json.loads((tmp_path / "targets.json").read_text())["rows"]
    assert row == {"accuracy": 0.8, "fingerprint": fingerprint("targets")}
    assert earlier([row], "targets", "abc") == ""
    assert earlier([{}], "targets", "abc").startswith("These rows were measured by an earlier")
    assert earlier([row, {"commit": "def"}], "targets", "abc").endswith("(commit `def`).")
    assert earlier([{}], "audit", "abc").startswith("Measured at commit `abc`, which may be")
    new = {**row, "dataset": "adult", "part": "none"}
    old = [{"dataset": "adult", "part": "paper"}, {"dataset": "mnist", "part": "none"}]
    assert earlier([new, *old], "targets", "abc").endswith("(commit `abc`): adult `paper`, mnist.")
    Results(tmp_path, "squares", "command").add({"value": 1})  # no experiment of ours
    assert json.loads((tmp_path / "squares.json").read_text())["rows"] == [{"value": 1}]
    assert fingerprint("bench-search-peers") == fingerprint("bench-search")
