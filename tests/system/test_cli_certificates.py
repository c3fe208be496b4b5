"""`explain --certificates`, `verify` and `summary` as a person meets them."""

import json

import pytest
from commands import EXPLAIN, assert_refused

VERIFY = ("verify", "all.jsonl", "--veil", "loans.veil", "--model", "model.pt2")
ROWS = ("--query", "queries.csv")


@pytest.fixture
def certified(does, world):
    (world / "rules.json").write_text('{"may_change": ["income", "housing"]}')
    does("keys", "new", "--name", "Desk 7", "--out", "desk.key")
    signed = ("--certificates", "all.jsonl", "--sign", "desk.key", "--rules", "rules.json")
    out, _ = does(*EXPLAIN, "--target", "granted", *signed)
    assert "wrote all.jsonl" in out
    return world


def test_certificates_are_checked(run, does, certified):
    out, _ = does(*VERIFY, *ROWS, "--trust", "desk.pub", "--rules", "rules.json")
    lines = (certified / "all.jsonl").read_text().splitlines()
    assert f"{len(lines)} of {len(lines)} (lines 1, 2" in out
    assert "Desk 7" in out
    code, out, _ = run(*VERIFY)
    assert (code, "was not checked" in out) == (0, True)
    (certified / "all.jsonl").write_text(lines[0].replace('"granted"', '"refused"', 1))
    code, out, _ = run(*VERIFY, *ROWS, "--json")
    assert code == 1
    assert "signature" in json.loads(out)[0]["refusals"][0]
    (certified / "rules.json").write_text("{}")
    (certified / "all.jsonl").write_text(lines[0])
    code, out, _ = run(*VERIFY, *ROWS, "--rules", "rules.json")
    assert (code, "the rules" in out) == (1, True)
    run("keys", "new", "--name", "Desk 7", "--out", "other.key")
    assert run(*VERIFY, *ROWS, "--trust", "other.pub")[0] == 1


def test_a_folder_and_the_private_model(does, world):
    command = ("explain", "--veil", "loans.veil", *("--queries", "queries.csv"))
    does(*command, "--target", "granted", "--certificates", "each")
    for path in [*(world / "each").iterdir()][:2]:
        out, _ = does("verify", path, "--veil", "loans.veil", *ROWS)
        assert "private model; unsigned" in out


def test_what_cannot_be_checked(run, certified):
    (certified / "bad.json").write_text("{}\n")
    for words, message in (
        (("verify", "bad.json", "--veil", "loans.veil"), "line 1: no certificate"),
        (("verify", "none.json", "--veil", "loans.veil"), "no certificate at none.json"),
        (("verify", "all.jsonl", "--veil", "loans.veil"), "give --model"),
        ((*EXPLAIN, "--sign", "desk.key"), "--certificates"),
        ((*EXPLAIN, "--certificates", "desk.key", "--sign", "desk.key"), "desk.key"),
        ((*EXPLAIN, "--certificates", "c", "--sign", "desk.pub"), "cannot sign"),
    ):
        assert_refused(run(*words), message)


@pytest.mark.long
def test_the_summary_of_actions(run, does, world):
    command = ("summary", "--veil", "loans.veil", "--model", "model.pt2")
    out, _ = does(*command, "--draw", "150", "--groups", "member", "--out", "a.html")
    assert "drawn from the veil" in out
    assert "member: yes" in (world / "a.html").read_text()
    out, err = does(*command, "--queries", "rows.csv", "--json")
    assert "no ε covers it" in err
    assert json.loads(out)["actions"][0]["helps"] > 0.02
    assert_refused(run(*command, "--groups", "income"), "is a number")
    assert_refused(run(*command, "--out", "a.txt"), ".html")
    assert_refused(run(*command, "--target", "maybe"), "maybe")
