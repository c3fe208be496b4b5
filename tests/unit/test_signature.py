"""Keys, their files, and signatures."""

import os
import stat
from base64 import b64encode

import pytest

from counterveil.errors import RequestError
from counterveil.signature import PUBLIC, PublicKey, SigningKey, open_key


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_is_never_overwritten_or_left_half(tmp_path, monkeypatch):
    key = SigningKey.new("a")
    public = key.save(tmp_path / "a.key")
    assert (mode(tmp_path / "a.key"), mode(public)) == (0o600, 0o644)
    assert SigningKey.load(tmp_path / "a.key") == key
    assert open_key(public) == ("public key", key.public)
    assert open_key(tmp_path / "a.key") == ("signing key", key.public)
    before = (tmp_path / "a.key").read_bytes()
    with pytest.raises(RequestError, match="never overwritten"):
        SigningKey.new("b").save(tmp_path / "a.key")
    (tmp_path / "a.key").rename(tmp_path / "old.key")
    with pytest.raises(RequestError, match=r"a\.pub exists"):
        SigningKey.new("b").save(tmp_path / "a.key")
    assert not (tmp_path / "a.key").exists()
    assert (tmp_path / "old.key").read_bytes() == before
    (tmp_path / "link.key").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RequestError, match="never overwritten"):
        SigningKey.new("b").save(tmp_path / "link.key")
    with pytest.raises(RequestError, match="is for the public key"):
        SigningKey.new("b").save(tmp_path / "b.pub")
    usual = os.open

    def full(path, *options):
        if str(path).endswith(".pub"):
            raise OSError(28, "full")
        return usual(path, *options)

    monkeypatch.setattr("os.open", full)
    with pytest.raises(RequestError, match=r"cannot write .*half\.pub: full"):
        SigningKey.new("a").save(tmp_path / "half.key")
    assert not [*tmp_path.glob("half*")]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"hello\n", b"\xff\xfe", b"counterveil-public-key AAAA office\n",
        b"counterveil-public-key !!!! office\n", b"counterveil-public-key " + b"A" * 43 + b"= \n",
        b"counterveil-public-key " + b"A" * 43 + b"= a\x1b[2Jb\n",
        b"counterveil-public-key " + b"A" * 43 + b"= " + b"n" * 200,
        b"other-key " + b"A" * 43 + b"= office\n", b"x" * 100_000,
    ],
)  # fmt: skip
def test_files_that_are_no_keys(tmp_path, content):
    with pytest.raises(RequestError, match="no key at"):
        PublicKey.load(tmp_path / "a.pub")
    (tmp_path / "a.pub").write_bytes(content)
    with pytest.raises(RequestError, match="no key of counterveil"):
        PublicKey.load(tmp_path / "a.pub")


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\x1b", "n" * 101, "\ud800"])
def test_names_that_are_refused(name):
    with pytest.raises(RequestError, match="the name of a key"):
        SigningKey.new(name)


def test_a_signature_is_under_one_manifest_and_one_name(tmp_path):
    key = SigningKey.new("Privacy office")
    signature = key.sign(b"manifest")
    assert signature.holds_for(b"manifest")
    assert not signature.holds_for(b"manifest ")
    renamed = type(signature)(PublicKey("Another office", key.public.raw), signature.value)
    assert not renamed.holds_for(b"manifest")
    assert SigningKey.new("Privacy office").public != key.public
    assert key.sign(b"manifest") == signature
    key = SigningKey.new("a")
    key.save(tmp_path / "a.key")
    secret = (tmp_path / "a.key").read_text().split()[1]
    assert secret not in repr(key)
    assert repr(key.raw) not in repr(key)
    assert secret not in (tmp_path / "a.pub").read_text()
    with pytest.raises(RequestError, match="keep it secret") as caught:
        PublicKey.load(tmp_path / "a.key")
    assert secret not in str(caught.value)
    with pytest.raises(RequestError, match="cannot sign"):
        SigningKey.load(tmp_path / "a.pub")


def test_a_key_under_which_anybody_can_sign_is_refused(tmp_path):
    """Points whose order divides 8, and ways to write points with digits too many."""
    prime = 2**255 - 19
    eighth = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
    minus = (prime - int.from_bytes(eighth, "little")).to_bytes(32, "little")
    weak = [number.to_bytes(32, "little") for number in (0, 1, prime - 1, prime, prime + 1)]
    for raw in (*weak, eighth, minus):
        signed = raw[:31] + bytes([raw[31] | 0x80])
        for each in (raw, signed):
            with pytest.raises(ValueError, match="weak key"):
                PublicKey("anybody", each)
            (tmp_path / "weak.pub").write_text(f"{PUBLIC} {b64encode(each).decode()} anybody\n")
            for load in (PublicKey.load, open_key):
                with pytest.raises(RequestError, match="weak key"):
                    load(tmp_path / "weak.pub")
    for _ in range(50):
        assert len(SigningKey.new("desk").public.raw) == 32
