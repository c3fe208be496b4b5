"""`counterveil keys`, and `--trust` of inspect and explain."""

import json
import stat

import pytest
from commands import EXPLAIN, assert_refused

from counterveil.signature import PublicKey, SigningKey
from counterveil.veil import Veil


@pytest.fixture
def signed(does, world):
    """A folder with office.key, office.pub, another pair, and the veil signed by the office."""
    does("keys", "new", "--name", "Privacy office", "--out", "office.key")
    does("keys", "new", "--name", "Privacy office", "--out", "stranger.key")
    key = SigningKey.load(world / "office.key")
    Veil.load(world / "loans.veil").signed(key).save(world / "signed.veil")
    return world


def test_keys_new_and_show(run, does, tmp_path):
    code, out, _ = run("keys", "new", "--name", "Privacy office", "--out", "office.key")
    fingerprint = PublicKey.load(tmp_path / "office.pub").fingerprint
    assert code == 0
    assert f"fingerprint {fingerprint}" in out
    assert stat.S_IMODE((tmp_path / "office.key").stat().st_mode) == 0o600
    for file, kind in (("office.pub", "public key"), ("office.key", "signing key")):
        out, _ = does("keys", "show", file)
        assert "Privacy office" in out
        assert fingerprint in out
        _, out, _ = run("keys", "show", file, "--json")
        said = {"kind": kind, "name": "Privacy office", "fingerprint": fingerprint}
        assert json.loads(out) == said
        assert (tmp_path / "office.key").read_text().split()[1] not in out
    again = run("keys", "new", "--name", "Privacy office", "--out", "office.key")
    assert_refused(again, "never overwritten")
    assert_refused(run("keys", "new", "--name", "", "--out", "b.key"), "the name of a key")
    assert_refused(run("keys", "show", "none.pub"), "no key at")


def test_inspect_says_who_signed(run, does, signed):
    short = PublicKey.load(signed / "office.pub").fingerprint[:16]
    trust = ("--trust", "stranger.pub", "--trust", "office.pub")
    for command, said in (
        (("loans.veil",), "unsigned: anybody could have made this file"),
        (("signed.veil",), f"signed by key {short}…, which calls itself 'Privacy office'; give"),
        (("signed.veil", *trust), f"signed by 'Privacy office' (key {short}…), trusted"),
    ):
        out, _ = does("inspect", *command)
        assert said in " ".join(out.split())
        _, out, _ = run("inspect", *command, "--json")
        content = json.loads(out)["signature"]
        assert content["text"].startswith(said)
        assert content["signed"] == ("signed" in command[0])
        assert content["trusted"] == (len(command) > 1)


def test_a_veil_that_is_not_signed_by_a_trusted_key_is_refused(run, signed):
    for start in (("inspect",), (*EXPLAIN, "--veil")):
        assert_refused(run(*start, "loans.veil", "--trust", "office.pub"), "is not signed")
        by_other = run(*start, "signed.veil", "--trust", "stranger.pub")
        assert_refused(by_other, "not one of the trusted keys")
        secret = run(*start, "signed.veil", "--trust", "office.key")
        assert_refused(secret, "give its .pub file")
        assert_refused(run(*start, "signed.veil", "--trust", "x.pub"), "no key at")
    over = run(*EXPLAIN, "--trust", "office.pub", "--report", "office.pub")
    assert_refused(over, "is an input of this command")


def test_explain_says_who_signed(run, does, signed):
    command = (*EXPLAIN, "--veil", "signed.veil", "--report", "r.html")
    out, _ = does(*command, "--trust", "office.pub")
    assert "the veil is signed by 'Privacy office' (key " in out
    page = (signed / "r.html").read_text()
    for words in ("The veil is signed by &#39;Privacy office&#39; (key ", "trusted", "unit&#39;s"):
        assert words in page
    _, out, _ = run(*EXPLAIN, "--json", "--report", "u.html")
    assert json.loads(out)["signature"]["text"] == "unsigned: anybody could have made this file"
    assert "The veil is unsigned: anybody" in (signed / "u.html").read_text()
