"""Wrong input of every kind is refused in one line, and output that nobody reads is no fault."""

import json
import os
import stat
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import EXPLAIN, RELEASE, assert_refused

# --- Several outputs ---


def test_one_file_for_two_outputs(run, world):
    os.symlink("cf.csv", world / "link.html")
    (world / "cf.json").write_bytes(b"")
    os.link(world / "cf.json", world / "twin.html")
    pairs = (("cf.csv", "cf.csv"), ("cf.csv", "./cf.csv"), ("cf.csv", "link.html"))
    for out, report in (*pairs, ("cf.json", "twin.html")):
        answer = run(*EXPLAIN, "--out", out, "--report", report)
        assert_refused(answer, "--out and --report are the same file")
    assert not (world / "cf.csv").exists()
    os.symlink("audit.json", world / "audit.csv")
    assert_refused(run("audit", "--out", "audit.json"), "are the same file")


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_outputs_have_the_rights_that_the_umask_leaves(does, world, mask, mode):
    before = os.umask(mask)
    try:
        beyond = ("--raw-csv", "--max-changes", 10**30)  # beyond what a tensor holds
        does(*EXPLAIN, "--out", "cf.csv", "--report", "cf.html", *beyond)
        does(*RELEASE, 1)
    finally:
        os.umask(before)
    for name in ("cf.csv", "cf.html", "new.veil"):
        assert stat.S_IMODE((world / name).stat().st_mode) == mode


# --- Numbers, names and files ---


NUMBERS = {
    "k": ("--k", 10**10), "k without end": ("--k", 10**400), "iterations": ("--iterations", 10**10),
    "ε of the model": ("--model-epsilon", "nan"), "a long name": ("--target", "x" * 100_000),
    "a long number": ("--k", "1" * 5000), "a long option": ("--" + "x" * 100_000, "1"),
    "a long file name": ("--rules", "x" * 5000),
}  # fmt: skip


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_and_names_beyond_all_bounds(run, world, case):
    answer = run(*EXPLAIN, *NUMBERS[case])
    assert_refused(answer, "")
    assert len(answer[2]) < 1000


RULES = ('{"costs": {"age": null}}', '{"steps": {"age": NaN}}', "3", "[" * 100_000)


@pytest.mark.parametrize("content", RULES)
def test_rules_that_are_none(run, world, content):
    (world / "rules.json").write_text(content)
    assert_refused(run(*EXPLAIN, "--rules", "rules.json"), "")


def test_link_values_that_are_lists(run, world):
    content = json.loads((world / "schema.json").read_text())
    link = {"source": "region", "derived": "member", "values": [[[1], "no"]]}
    (world / "schema.json").write_text(json.dumps({**content, "links": [link]}))
    assert_refused(run(*RELEASE, 1), "must pair a category")


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.string(), pa.int64()), pa.struct({"a": pa.int64()}), pa.list_(pa.int64())]
)
def test_columns_that_hold_more_than_a_value(run, does, world, kind):
    pd.read_csv(world / "queries.csv").to_parquet(world / "rows.parquet")
    table = pq.read_table(world / "rows.parquet")
    value = {"a": 1} if pa.types.is_struct(kind) else [("a", 1)] if pa.types.is_map(kind) else [1]
    nested = pa.array([value] * len(table), kind)
    pq.write_table(table.set_column(1, "income", nested), world / "rows.parquet")
    assert_refused(run(*EXPLAIN, "--queries", "rows.parquet"), "")
    assert_refused(run("check", "--data", "rows.parquet", "--schema", "schema.json"), "")
    _, err = does("schema", "draft", "rows.parquet", "--label", "loan")
    assert "left out: income " in err
    assert run(*RELEASE, 1, "--data", "rows.parquet")[0] == 0  # it says nothing about a cell


# --- Standard output ---


def command(world, *arguments, **how):
    words = [sys.executable, "-m", "counterveil.cli", *map(str, arguments)]
    return subprocess.run(words, cwd=world, stderr=subprocess.PIPE, check=False, **how)


@pytest.mark.long
def test_a_closed_pipe_is_not_a_refuted_promise(world):
    reader, writer = os.pipe()
    os.close(reader)
    done = command(world, "inspect", "loans.veil", "--json", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.long
def test_standard_output_in_ascii(world):
    with open("/dev/full", "w") as full:  # and on a full disk
        done = command(world, "inspect", "loans.veil", stdout=full)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"No space left" in done.stderr
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = command(world, "inspect", "loans.veil", stdout=subprocess.PIPE, env=ascii_only)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"? = 100" in shown.stdout
    content = json.loads((world / "schema.json").read_text())
    (world / "schema.json").write_text(json.dumps({**content, "name": "é"}))
    made = command(world, "inspect", "loans.veil", "--json", stdout=subprocess.PIPE, env=ascii_only)
    assert made.returncode == 0
    json.loads(made.stdout)
