"""The demo, small: every step of it, and the files it leaves."""

import pytest

from counterveil.cli import main
from counterveil.demo.adult import adult_schema, adult_split
from counterveil.encoding import Encoding


def test_embedded_adult_fits_its_schema():
    split, schema = adult_split(seed=1), adult_schema()
    assert len(split.train) + len(split.test) == 48_842
    assert (len(schema.features), schema.width, schema.drafted) == (11, 46, False)
    for part in (split.train, split.test):
        Encoding(schema).encode(part)
        share = Encoding(schema).labels(part).mean()
        assert 0.22 < share < 0.26


def test_demo(tmp_path, capsys):
    main_exits_well(["demo", "--out", str(tmp_path), "--queries", "30", "--epochs", "1"])
    out = capsys.readouterr().out
    for words in ("flip ratio", "distance", "legal rows", "1.000", "→", "nominal", "report.html"):
        assert words in out
    page = (tmp_path / "report.html").read_text()
    for words in ("<svg", "reconstruction error", "Three explanations", "guarantee none"):
        assert words in page
    assert (tmp_path / "adult-0.75.veil").exists()
    main_exits_well(
        ["explain", "--veil", str(tmp_path / "adult-0.75.veil"), "--model",
         str(tmp_path / "model.pt2"), "--queries", str(tmp_path / "queries.csv"),
         "--target", ">50K", "--iterations", "20", "--out", str(tmp_path / "cf.csv")]
    )  # fmt: skip
    assert (tmp_path / "cf.csv").exists()


def main_exits_well(arguments):
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code in {0, None}
