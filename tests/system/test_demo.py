"""The demo, small: every step of it, and the files it leaves."""

import os
import signal
import subprocess
import sys
import time

import pytest

from counterveil.cli import main
from counterveil.demo.adult import adult_schema, adult_split
from counterveil.encoding import Encoding


def test_embedded_adult_fits_its_schema():
    split, schema = adult_split(seed=1), adult_schema()
    assert len(split.train) + len(split.test) == 48_842
    assert (len(schema.features), schema.width, schema.drafted) == (11, 46, False)
    assert {*schema.immutable_names} == {
        "age", "race", "sex", "capital_gain", "capital_loss", "marital_status", "relationship",
    }  # fmt: skip
    assert schema.feature("hours_per_week").allowed == (1, 60)
    for part in (split.train, split.test):
        Encoding(schema).encode(part)
        share = Encoding(schema).labels(part).mean()
        assert 0.22 < share < 0.26


@pytest.mark.slow
def test_demo(tmp_path, capsys):
    main_exits_well(["demo", "--quick", "--out", str(tmp_path), "--queries", "30"])
    out, err = capsys.readouterr()
    assert err.count("learning to search") == 2
    for words in (
        *("flip ratio", "distance", "legal", "1.000", "→", "paper", "functional", "proved"),
        *("three of the answers", "guarantee explainer, ε = 0.75; the veil is private"),
        "report.html",
    ):
        assert words in out
    page = (tmp_path / "report.html").read_text()
    for words in ("<svg", "reconstruction error", "Three explanations", "guarantee explainer"):
        assert words in page
    names = ("0.75", "0.025", "paper-no-noise", "paper-0.75", "paper-0.025")
    assert {path.stem for path in tmp_path.glob("*.veil")} == {f"adult-{name}" for name in names}
    veil, model, queries, found = (
        str(tmp_path / name) for name in ("adult-0.75.veil", "model.pt2", "queries.csv", "cf.csv")
    )
    explain = ["explain", "--veil", veil, "--model", model, "--queries", queries, "--out", found]
    main_exits_well([*explain, "--target", ">50K"])
    assert (tmp_path / "cf.csv").exists()


@pytest.mark.slow
def test_an_interrupt_stops_the_demo_and_its_workers(tmp_path):
    # A shell may start background jobs deaf to interrupts: hear them again.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from counterveil.cli import main; main(['demo', '--out', {str(tmp_path / 'd')!r}])"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    said = ""
    while "releasing" not in said:
        said = running.stderr.readline()
        assert said, "the demo ended early"
    time.sleep(2)
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=30)  # ends when every worker has let go of stderr
    assert running.returncode == 130
    assert err.strip() == "interrupted"
    assert not (tmp_path / "d").exists()


def main_exits_well(arguments):
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code in {0, None}
