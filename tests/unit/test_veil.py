import hashlib
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_arrays
from safetensors.torch import save

from counterveil.curator import Curator
from counterveil.errors import RequestError, VeilError
from counterveil.privacy.record import to_members
from counterveil.veil import MEMBER_LIMITS, Veil


@pytest.fixture
def members(veil, tmp_path):
    veil.save(tmp_path / "good.veil")
    with zipfile.ZipFile(tmp_path / "good.veil") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def load(tmp_path):
    """Pack members into a file and load it."""

    def pack_and_load(members, **options):
        with zipfile.ZipFile(tmp_path / "x.veil", "w", **options) as archive:
            for name, content in members:
                archive.writestr(name, content)
        return Veil.load(tmp_path / "x.veil")

    return pack_and_load


def test_round_trip(veil, tmp_path):
    veil.save(tmp_path / "a.veil")
    again = Veil.load(tmp_path / "a.veil")
    assert again.schema == veil.schema
    assert again.statement == veil.statement
    assert again.digest == veil.digest
    assert torch.equal(again.prototypes, veil.prototypes)
    points = torch.rand(5, veil.schema.width)
    assert torch.equal(again.autoencoder(points), veil.autoencoder(points))
    assert torch.equal(again.surrogate(points), veil.surrogate(points))
    again.save(tmp_path / "b.veil")
    assert (tmp_path / "a.veil").read_bytes() == (tmp_path / "b.veil").read_bytes()


def test_good_members_load(members, load):
    assert load(members.items()).schema.name == "loans"


def test_any_damaged_byte_is_noticed(veil, tmp_path):
    veil.save(tmp_path / "a.veil")
    content = bytearray((tmp_path / "a.veil").read_bytes())
    fine = 0
    for place in range(0, len(content), 37):
        broken = bytearray(content)
        broken[place] ^= 0xFF
        (tmp_path / "b.veil").write_bytes(broken)
        try:
            loaded = Veil.load(tmp_path / "b.veil")
        except VeilError:
            continue
        else:  # a byte of the zip's own book-keeping, such as a date
            assert loaded.digest == veil.digest
            fine += 1
    assert fine < len(content) / 37 / 4


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99])
def test_truncated(veil, tmp_path, share):
    veil.save(tmp_path / "a.veil")
    content = (tmp_path / "a.veil").read_bytes()
    (tmp_path / "b.veil").write_bytes(content[: int(share * len(content))])
    with pytest.raises(VeilError, match=r"b\.veil"):
        Veil.load(tmp_path / "b.veil")


def test_foreign_files(tmp_path, load):
    (tmp_path / "p.veil").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(VeilError, match="not a veil file"):
        Veil.load(tmp_path / "p.veil")
    with pytest.raises(VeilError, match="exactly the members"):
        load([("hello.txt", b"hi")])
    with pytest.raises(VeilError, match="no veil at"):
        Veil.load(tmp_path / "none.veil")
    with pytest.raises(VeilError, match="cannot read the veil"):
        Veil.load(tmp_path)


@pytest.mark.parametrize("name", ["../evil.py", "/etc/passwd", "model.pkl", "manifest.json"])
def test_members_that_do_not_belong(members, load, name):
    extra = [*members.items(), (name, b"{}")]
    if name in members:
        with (
            pytest.warns(UserWarning, match="Duplicate"),
            pytest.raises(VeilError, match="exactly"),
        ):
            load(extra)
    else:
        with pytest.raises(VeilError, match="exactly the members"):
            load(extra)


def test_oversized_member_is_refused_before_it_is_unpacked(members, load):
    bomb = {**members, "manifest.json": b" " * (MEMBER_LIMITS["manifest.json"] + 1)}
    with pytest.raises(VeilError, match="larger than it may be"):
        load(bomb.items(), compression=zipfile.ZIP_DEFLATED)


def test_a_lie_about_the_size_is_noticed(members, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content if name != "statement.json" else b" " * (1 << 21))
    content = buffer.getvalue().replace((1 << 21).to_bytes(4, "little"), (9).to_bytes(4, "little"))
    (tmp_path / "lie.veil").write_bytes(content)
    with pytest.raises(VeilError):
        Veil.load(tmp_path / "lie.veil")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 1}, "reads veils of version 2.*release it again"),
        ({"version": 3}, "reads veils of version 2"),
        ({"format": "other"}, "foreign"),
        ({"hidden": [10**9]}, "layer sizes"),
        ({"hidden": []}, "layer sizes"),
        ({"hidden": [True]}, "layer sizes"),
        ({"hidden": [32, 17]}, "do not fit"),
        ({"sha256": {}}, "SHA-256"),
        ({"sha256": 3}, "SHA-256"),
    ],
)
def test_manifest(members, load, change, words):
    manifest = {**json.loads(members["manifest.json"]), **change}
    with pytest.raises(VeilError, match=words):
        load({**members, "manifest.json": json.dumps(manifest).encode()}.items())


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b"[" * 60_000])
def test_manifest_that_is_none(members, load, text):
    with pytest.raises(VeilError):
        load({**members, "manifest.json": text}.items())


def _with_digest(members, name, content):
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    return {**members, name: content, "manifest.json": json.dumps(manifest).encode()}


def test_right_digest_wrong_content(members, load, veil):
    for name in ("schema.json", "statement.json", "weights.safetensors", "record.json",
                 "record.safetensors"):  # fmt: skip
        with pytest.raises(VeilError, match="not that of a veil"):
            load(_with_digest(members, name, b"{}").items())
    tensors = {**veil.autoencoder.state_dict(), "prototypes": veil.prototypes * float("nan")}
    tensors |= {f"surrogate.{name}": part for name, part in veil.surrogate.state_dict().items()}
    with pytest.raises(VeilError, match="not finite"):
        load(_with_digest(members, "weights.safetensors", save(tensors)).items())


def test_saving_never_leaves_half_a_file(veil, tmp_path, monkeypatch):
    target = tmp_path / "a.veil"
    target.write_bytes(b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(RequestError, match="full"):
        veil.save(target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.veil"]


def test_hostile_texts_and_packings(members, load):
    for name, change in (
        ("statement.json", {"mechanism": "\x1b[2J"}),
        ("statement.json", {"epsilon": -3}),
        ("statement.json", {"delta": 2}),
        ("schema.json", {"name": "a\x07b"}),
        ("schema.json", {"features": [{"kind": "pixels", "name": "p", "height": 20000,
                                       "breadth": 20000}]}),
    ):  # fmt: skip
        content = json.dumps({**json.loads(members[name]), **change}).encode()
        with pytest.raises(VeilError):
            load(_with_digest(members, name, content).items())
    for content in (b"[" * 100_000, b'{"version": ' + b"9" * 5000 + b"}"):
        with pytest.raises(VeilError):
            load(_with_digest(members, "schema.json", content).items())
    for packing in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(VeilError, match="packed"):
            load(members.items(), compression=packing)


def test_a_veil_without_surrogate(schema, rows, tmp_path):
    veil = Curator(schema).release(rows, 1, mechanism="paper", epochs=1, progress=False)
    veil.save(tmp_path / "p.veil")
    assert Veil.load(tmp_path / "p.veil").surrogate is None


def test_a_veil_of_version_1_is_refused_with_the_remedy(members, load):
    """It had four members, and the amortised search among its weights."""
    manifest = {**json.loads(members["manifest.json"]), "version": 1, "amortiser": [128]}
    old = {name: members[name] for name in ("schema.json", "statement.json", "weights.safetensors")}
    manifest["sha256"] = {name: hashlib.sha256(old[name]).hexdigest() for name in old}
    with pytest.raises(VeilError, match=r"reads veils of version 2.*or release it again"):
        load({"manifest.json": json.dumps(manifest).encode(), **old}.items())


def test_the_record_goes_through_the_file_byte_for_byte(veil, members, tmp_path):
    veil.save(tmp_path / "a.veil")
    again = Veil.load(tmp_path / "a.veil")
    assert to_members(again.record) == to_members(veil.record)
    for name in ("record.json", "record.safetensors"):
        assert to_members(again.record)[name] == members[name]
    assert len(members["record.safetensors"]) < 1 << 16  # kilobytes


def _changed(name, value):
    return lambda record: {**record, name: value}


def _measured(name, value):
    return lambda record: {
        **record, "measurements": [{**record["measurements"][0], name: value},
                                   *record["measurements"][1:]],
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        _changed("family", "binary"),
        _changed("family", "other"),
        _changed("unit", "family"),
        _changed("units", 0),
        _changed("units", 1.5),
        _changed("units", True),
        _changed("units", "600"),
        _changed("units", 10**30),
        _changed("fine", 10**9),
        _changed("fine", 63),
        _changed("fine", -1),
        _changed("coarse", 10**9),
        _changed("coarse", 1),
        _changed("frequencies", 10**9),
        _changed("fixed_point", 0),
        _changed("extra", 1),
        _changed("measurements", []),
        _changed("measurements", None),
        _changed("measurements", [3]),
        _changed("measurements", [{"name": [1]}]),
        _measured("name", "pairs"),
        _measured("name", "other"),
        _measured("name", None),
        _measured("what", "\x1b[2J"),
        _measured("what", "something else"),
        _measured("mechanism", "no noise"),
        _measured("mechanism", "discrete Gaussian"),
        _measured("scale", 0),
        _measured("scale", float("nan")),
        _measured("scale", float("inf")),
        _measured("scale", 1.0),
        _measured("epsilon", -1),
        _measured("delta", 1),
        _measured("sensitivity", {"l1": 0, "l2": 1.0}),
        _measured("sensitivity", {"l1": 1, "l2": 1.0, "l3": 1}),
        _measured("values", [1, 2]),
        lambda record: [record],
        lambda record: None,
    ],
)
def test_a_forged_record_is_refused(members, load, change):
    content = json.dumps(change(json.loads(members["record.json"])), indent=2).encode()
    with pytest.raises(VeilError):
        load(_with_digest(members, "record.json", content).items())


@pytest.mark.parametrize("kind", ["float", "int32", "shape", "more", "fewer", "name", "tree"])
def test_forged_integers_are_refused(veil, members, load, kind):
    arrays = {found.name: found.values for found in veil.record.measurements}
    assert [*arrays] == ["singles", "tree", "pairs"]
    if kind == "float":
        arrays["pairs"] = arrays["pairs"] + 0.5
    elif kind == "int32":
        arrays["pairs"] = arrays["pairs"].astype(np.int32)
    elif kind == "shape":
        arrays["singles"] = arrays["singles"].T.copy()
    elif kind == "more":
        arrays["pairs"] = np.append(arrays["pairs"], 1)
    elif kind == "fewer":
        del arrays["tree"]
    elif kind == "name":
        arrays["other"] = arrays["tree"]
    else:
        arrays["tree"] = arrays["tree"] * 0
    with pytest.raises(VeilError):
        load(_with_digest(members, "record.safetensors", save_arrays(arrays)).items())


def test_any_other_integers_load(veil, members, load):
    """The file holds whatever noise there was: extremes are as legal as small numbers."""
    for value in (-(2**63), 0, 2**63 - 1):
        arrays = {found.name: found.values for found in veil.record.measurements}
        arrays["singles"] = np.full_like(arrays["singles"], value)
        loaded = load(_with_digest(members, "record.safetensors", save_arrays(arrays)).items())
        points, _ = loaded.population().sample(50, np.random.default_rng(0))
        assert np.isfinite(points).all()
