import hashlib
import io
import json
import math
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save as save_arrays
from safetensors.torch import save

from counterveil.build import Training
from counterveil.curator import Curator
from counterveil.curator.noise import calibrate
from counterveil.errors import VeilError
from counterveil.population.spikes import SLICES
from counterveil.privacy import Budget, Level
from counterveil.privacy.record import Sensitivity, to_members
from counterveil.schema import Binary, Label, Numeric, Pixels, Schema
from counterveil.schema.schema import MOST_FEATURES
from counterveil.signature import PublicKey, SigningKey
from counterveil.veil import Veil
from counterveil.veil_file import MEMBER_LIMITS


def pack(entries, compression=zipfile.ZIP_STORED):
    """A zip of (name, content) pairs as counterveil packs them, written here once more."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in entries:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, content, compression)
    return buffer.getvalue()


def members_of(veil):
    with zipfile.ZipFile(io.BytesIO(veil.to_bytes())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def members(veil):
    return members_of(veil)


@pytest.fixture
def load():
    """Pack members as counterveil does and load them."""
    return lambda entries, **options: Veil.from_bytes(pack(entries, **options))


@pytest.fixture(scope="module")
def key():
    return SigningKey.new("Privacy office")


TINY = Training(50, 1, 50, 1e-3, (3,), 1)


@pytest.fixture(scope="module")
def tiny(key):
    """A signed veil of a few kilobytes."""
    schema = Schema(
        features=(Numeric(name="x", lower=0, upper=1), Binary(name="b")),
        label=Label(name="y", classes=("n", "y")),
    )
    rows = pd.DataFrame({"x": [0.1, 0.9] * 9, "b": [0, 1, 1] * 6, "y": ["n", "y"] * 9})
    made = Curator(schema).release(rows, 0.3, 1e-6, order=1, training=TINY, progress=False)
    return made.signed(key)


def test_round_trip(veil, tmp_path, members):
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
    veil.save(tmp_path / "a.veil")
    again = Veil.load(tmp_path / "a.veil")
    assert to_members(again.record) == to_members(veil.record)
    for name in ("record.json", "record.safetensors"):
        assert to_members(again.record)[name] == members[name]
    numbers = 8 * SLICES * sum(feature.is_wide for feature in veil.schema.features)
    assert len(members["record.safetensors"]) < (1 << 16) + numbers  # kilobytes, and the slices


def refused(content):
    try:
        Veil.from_bytes(content)
    except VeilError:
        return True
    return False


def test_every_flipped_byte_is_refused(tiny):
    """Every position of a signed veil: headers, manifest, members, directory, signature."""
    content = tiny.to_bytes()
    assert Veil.from_bytes(content).digest == tiny.digest
    assert len(content) < 1 << 15
    generator = random.Random(0)
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= generator.randrange(1, 256)
        assert refused(bytes(broken)), place


def test_a_padded_or_cut_byte_is_refused(tiny):
    content = tiny.to_bytes()
    for extra in (b"\0", b" ", b"P"):
        assert refused(extra + content)
        assert refused(content + extra)
    assert refused(content[1:])
    assert refused(content[:-1])
    for place in random.Random(2).sample(range(len(content)), 500):
        assert refused(content[:place] + b"\0" + content[place:]), place
        assert refused(content[:place] + content[place + 1 :]), place


def test_a_zip_packed_otherwise_is_refused(tiny):
    entries = [*members_of(tiny).items()]
    assert Veil.from_bytes(pack(entries)).digest == tiny.digest
    for one in range(len(entries)):  # any two members changed about
        for two in range(one):
            swapped = entries.copy()
            swapped[one], swapped[two] = entries[two], entries[one]
            assert refused(pack(swapped))
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with pytest.raises(VeilError, match=r"packed otherwise|version 7 are.*release it again"):
            Veil.from_bytes(pack(entries, compression))  # versions 1 and 2 were compressed
    buffer = io.BytesIO(pack(entries))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"hello"
    assert refused(buffer.getvalue())
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:  # the date of today
        for name, content in entries:
            archive.writestr(name, content)
    assert refused(other.getvalue())


def test_foreign_files(tmp_path, members, load):
    (tmp_path / "p.veil").write_bytes(pickle.dumps({"a": 1}))
    for path, words in (
        ("p.veil", "not a veil file"),
        ("none.veil", "no veil at"),
        ("", "is no f"),
    ):
        with pytest.raises(VeilError, match=words):
            Veil.load(tmp_path / path)
    for name in ("../evil.py", "/etc/passwd", "model.pkl"):
        with pytest.raises(VeilError, match="exactly the members"):
            load([*members.items(), (name, b"{}")])
    twice = [*members.items(), ("manifest.json", b"{}")]
    with pytest.warns(UserWarning, match="Duplicate"), pytest.raises(VeilError, match="exactly"):
        load(twice)
    bomb = {**members, "manifest.json": b" " * (MEMBER_LIMITS["manifest.json"] + 1)}
    with pytest.raises(VeilError, match="larger than it may be"):
        load(bomb.items())
    for text in (b"", b"[]", b"\xff", b"[" * 60_000):
        with pytest.raises(VeilError):
            load({**members, "manifest.json": text}.items())
    entry = b"PK\x01\x02" + bytes(42)  # a directory of a million members is not even read
    with pytest.raises(VeilError):
        Veil.from_bytes(pack(members.items()) + entry * 1_000_000)


def test_a_lie_about_the_size_is_noticed(members, tmp_path):
    large = {**members, "statement.json": b" " * (1 << 21)}
    for said in (9, 1 << 20, (1 << 32) - 1):
        size, lie = (number.to_bytes(4, "little") for number in (1 << 21, said))
        (tmp_path / "lie.veil").write_bytes(pack(large.items()).replace(size, lie))
        with pytest.raises(VeilError):
            Veil.load(tmp_path / "lie.veil")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 5}, "reads veils of version 7.*release it again"),
        ({"version": 8}, "reads veils of version 7"), ({"format": "other"}, "foreign"),
        ({"hidden": [10**9]}, "layer sizes"), ({"hidden": []}, "layer sizes"),
        ({"hidden": [True]}, "layer sizes"), ({"hidden": [32, 17]}, "do not fit"),
        ({"surrogate": [9]}, "usable surrogate"),
        ({"surrogate": {"scorecard": [9], "dense": [9]}}, "usable surrogate"),
        ({"surrogate": {"convolutional": [1, 2, 3]}}, "usable surrogate"),
        ({"surrogate": {"other": [9]}}, "usable surrogate"),
        ({"surrogate": {"scorecard": [9]}}, "do not fit"),
        ({"surrogate": {"dense": [9]}}, "do not fit"), ({"sha256": {}}, "SHA-256"),
        ({"sha256": 3}, "SHA-256"),
    ],
)  # fmt: skip
def test_manifest(members, load, change, words):
    manifest = {**json.loads(members["manifest.json"]), **change}
    with pytest.raises(VeilError, match=words):
        load({**members, "manifest.json": json.dumps(manifest, indent=2).encode()}.items())


def _with_digest(members, name, content):
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    return {**members, name: content, "manifest.json": json.dumps(manifest, indent=2).encode()}


def test_right_digest_wrong_content(members, load, veil):
    for name in ("schema.json", "statement.json", "weights.safetensors", "record.json",
                 "record.safetensors"):  # fmt: skip
        with pytest.raises(VeilError, match=r"not that of a veil|does not have 1 to"):
            load(_with_digest(members, name, b"{}").items())
    tensors = {**veil.autoencoder.state_dict(), "prototypes": veil.prototypes * float("nan")}
    tensors |= {f"surrogate.{name}": part for name, part in veil.surrogate.state_dict().items()}
    with pytest.raises(VeilError, match="not finite"):
        load(_with_digest(members, "weights.safetensors", save(tensors)).items())


def test_hostile_texts(members, load, schema):
    drafted = schema.model_copy(update={"drafted": True}).to_json().encode()
    with pytest.raises(VeilError, match="its schema is a draft"):
        load(_with_digest(members, "schema.json", drafted).items())
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
        _changed("family", "binary"), _changed("unit", "family"), _changed("units", 0),
        _changed("units", True), _changed("units", 10**30), _changed("fine", 10**9),
        _changed("coarse", 10**9), _changed("frequencies", 10**9), _changed("fixed_point", 0),
        _changed("extra", 1), _changed("measurements", []), _changed("measurements", [3]),
        _measured("name", "pairs"), _measured("name", None), _measured("what", "\x1b[2J"),
        _measured("mechanism", "discrete Gaussian"), _measured("scale", 0),
        _measured("scale", float("nan")), _measured("scale", 1.0), _measured("epsilon", -1),
        _measured("delta", 1), _measured("sensitivity", {"l1": 0, "l2": 1.0}),
        _measured("sensitivity", {"l1": 1, "l2": 1.0, "l3": 1}), _measured("values", [1, 2]),
        lambda record: [record],
    ],
)  # fmt: skip
def test_a_forged_record_is_refused(members, load, change):
    content = json.dumps(change(json.loads(members["record.json"])), indent=2).encode()
    with pytest.raises(VeilError):
        load(_with_digest(members, "record.json", content).items())


@pytest.mark.parametrize("kind", ["float", "int32", "shape", "more", "fewer", "name"])
def test_forged_integers_are_refused(veil, members, load, kind):
    arrays = {found.name: found.values for found in veil.record.measurements}
    assert {"singles", "moments"} <= {*arrays}
    if kind == "float":
        arrays["moments"] = arrays["moments"] + 0.5
    elif kind == "int32":
        arrays["moments"] = arrays["moments"].astype(np.int32)
    elif kind == "shape":
        arrays["singles"] = arrays["singles"].T.copy()
    elif kind == "more":
        arrays["moments"] = np.append(arrays["moments"], 1)
    elif kind == "fewer":
        del arrays["moments"]
    else:
        arrays["other"] = arrays["moments"]
    with pytest.raises(VeilError):
        load(_with_digest(members, "record.safetensors", save_arrays(arrays)).items())


def test_any_other_integers_load(veil, members, load):
    """The file holds whatever noise there was: extremes are as legal as small numbers."""
    for value in (-(2**63), 0, 2**63 - 1):
        arrays = {found.name: found.values for found in veil.record.measurements}
        for name in ("singles", "moments"):
            arrays[name] = np.full_like(arrays[name], value)
            loaded = load(_with_digest(members, "record.safetensors", save_arrays(arrays)).items())
            points, _ = loaded.population().sample(50, np.random.default_rng(0))
            assert np.isfinite(points).all()


# What a forger could write. Every digest is computed anew: only the content can give it away.


def _statement(members, change):
    """The members with another statement: `change` edits its JSON, in place or by a copy."""
    content = json.loads(members["statement.json"])
    content = change(content) or content
    return _with_digest(members, "statement.json", json.dumps(content, indent=2).encode())


def _set(**values):
    return lambda statement: {**statement, **values}


def _access(number, **values):
    def change(statement):
        statement["accesses"][number] |= values

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set(level="end-to-end"), "a level of answers"),
        (_set(mechanism="paper"), "mechanism cannot keep"),
        (_set(mechanism="another"), "a mechanism that there is not"),
        (_set(epsilon=None), "mechanism cannot keep"),
        (_set(epsilon=99.0), "do not add up to its epsilon"),
        (_set(epsilon=100.0001), "do not add up to its epsilon"),
        (_set(epsilon=math.nextafter(100, 0)), "do not add up to its epsilon"),
        (_set(max_records=2), "a record has one record"),
        (_set(mechanism="dpsgd"), "its mechanism cannot keep"),
        (_set(mechanism="functional: guarantee explainer"), "a mechanism that there is not"),
        (_set(exclusions=[]), "does not say that the target model is not covered"),
        (_set(unit="person"), "another unit"),
        (_set(unit="person", max_records=3), "another unit"),
        (_set(accesses=[]), "not the one its statement tells of"),
        (_access(0, epsilon=1.0), "not the one its statement tells of"),
        (_access(0, l1=1), "not the one its statement tells of"),
        (_access(0, epsilon=-1.0), "not that of a veil"),
        (_access(0, what="a\nProtected unit: everybody"), "not that of a veil"),
        (_access(0, what="a\rb"), "not that of a veil"),
        (_set(reasons=["\ud800"]), "not that of a veil"),
        (_set(more="text"), "not that of a veil"),
    ],
)
def test_a_forged_statement_is_refused(members, load, change, words):
    with pytest.raises(VeilError, match=words):
        load(_statement(members, change).items())


def _forged(veil, **changes):
    """The members of a veil whose record and statement were changed alike."""
    made = [
        replace(found, **changes) if found.name == "singles" else found
        for found in veil.record.measurements
    ]
    record = replace(veil.record, measurements=tuple(made))
    accesses = {"accesses": record.accesses}
    return members_of(
        replace(veil, record=record, statement=veil.statement.model_copy(update=accesses))
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale": 1e-3}, "noise in its statement is too small"),
        ({"sensitivity": Sensitivity(1, 1.0)}, "smaller sensitivity"),
        ({"sensitivity": Sensitivity(16, 1.0)}, "smaller sensitivity"),
        ({"sensitivity": Sensitivity(1600, 400.0)}, "noise in its statement is too small"),
        ({"mechanism": "discrete Gaussian", "delta": 0.0}, "noise in its statement is too small"),
        ({"mechanism": "discrete Gaussian", "delta": 1e-3}, "spend more than its delta"),
        ({"epsilon": 1.0}, "do not add up"),
    ],
)
def test_a_record_and_statement_that_were_forged_alike_are_refused(veil, load, changes, words):
    with pytest.raises(VeilError, match=words):
        load(_forged(veil, **changes).items())


@pytest.mark.parametrize("name", ["labels", "pooled", "singles", "moments pairs", "spikes "])
def test_a_measurement_that_no_release_makes_is_refused(veil, load, name):
    """Under any name that is not known here, anything could leave, with any bound beside it."""
    singles = veil.record.find("singles")
    more = replace(singles, name=name)
    first = [each for each in veil.record.measurements if each.name in {"ranges", "singles"}]
    kept = first if " " in name else veil.record.measurements
    record = replace(veil.record, measurements=(*kept, more), norm=0, pairs=())
    statement = veil.statement.model_copy(update={"accesses": record.accesses})
    with pytest.raises(VeilError, match="does not fit its schema"):
        load(members_of(replace(veil, record=record, statement=statement)).items())


@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_gaussian_noise_must_be_enough_for_its_delta(tiny, load, delta):
    (singles,) = tiny.record.measurements
    gaussian = {"mechanism": "discrete Gaussian", "epsilon": 0.3, "delta": delta}
    needed = calibrate(
        10**6, singles.sensitivity.l2, Budget(0.3, delta)
    ).scale  # as OpenDP proves it
    for scale, is_enough in ((needed, True), (needed * 0.99, False)):
        record = replace(tiny.record, measurements=(replace(singles, scale=scale, **gaussian),))
        statement = tiny.statement.model_copy(update={"accesses": record.accesses})
        forged = replace(tiny, record=record, statement=statement, signature=None)
        if is_enough:
            assert load(members_of(forged).items()).digest == forged.digest
        else:
            with pytest.raises(VeilError, match="too small"):
                load(members_of(forged).items())


def test_a_published_veil_cannot_be_passed_off_as_private(schema, rows, veil, load):
    """Mechanism paper without any noise, relabelled by somebody who computes all digests anew."""
    bare = Curator(schema).release(rows, math.inf, mechanism="paper", epochs=1, progress=False)
    members = members_of(bare)
    assert load(members.items()).statement.epsilon is None
    claims = {"level": "explainer", "epsilon": 0.1}
    for mechanism, words in (("paper", "cannot keep"), ("functional", "has a noisy record"),
                             ("dpsgd", "cannot keep")):  # fmt: skip
        with pytest.raises(VeilError, match=words):
            load(_statement(members, _set(mechanism=mechanism, **claims)).items())
    with pytest.raises(VeilError, match="cannot keep"):
        load(_statement(members, _set(level="explainer")).items())
    for name in ("record.json", "record.safetensors"):  # of another veil, without its readings
        members = _with_digest(members, name, members_of(veil)[name])
    with pytest.raises(VeilError, match="not the one its statement tells of"):
        load(_statement(members, _set(mechanism="functional", **claims)).items())


def test_members_that_are_written_otherwise_are_refused(tiny, load):
    """Each says the same and has its digest, but only one way to write it is read."""
    members = members_of(replace(tiny, signature=None))
    for name in ("schema.json", "statement.json", "record.json"):
        content = json.loads(members[name])
        for text in (
            json.dumps(content),
            json.dumps(content, indent=3),
            members[name].decode() + " ",
        ):
            with pytest.raises(VeilError, match=r"not written as|not that of a veil"):
                load(_with_digest(members, name, text.encode()).items())
    for extra in ({"more": 1}, {"version": 7.0}):
        manifest = {**json.loads(members["manifest.json"]), **extra}
        with pytest.raises(VeilError, match="not written as"):
            load({**members, "manifest.json": json.dumps(manifest, indent=2).encode()}.items())
    weights = members["weights.safetensors"]
    size = int.from_bytes(weights[:8], "little")
    header, data = weights[8 : 8 + size], weights[8 + size :]
    named = json.loads(header)
    for other in (header + b" " * 8, json.dumps({"__metadata__": {"a": "b"}, **named}).encode()):
        content = len(other).to_bytes(8, "little") + other + data
        with pytest.raises(VeilError, match=r"not written as|not that of a veil"):
            load(_with_digest(members, "weights.safetensors", content).items())


def huge(members, kind):
    """The members with far too much of something."""
    told = {
        "reasons": {"reasons": ["x"] * 100_000}, "letters": {"reasons": ["x" * 900_000]},
        "accesses": {"accesses": json.loads(members["statement.json"])["accesses"] * 1000},
    }  # fmt: skip
    if kind in told:
        return _statement(members, _set(**told[kind]))
    if kind == "bytes":
        name = "weights.safetensors"
        return {**members, name: bytes(MEMBER_LIMITS[name] // 64)}
    count = MOST_FEATURES + 1 if kind == "features" else 700_000
    bits = [{"kind": "binary", "name": f"b{number}"} for number in range(count)]
    text = json.dumps({**json.loads(members["schema.json"]), "features": bits}).encode()
    return _with_digest(members, "schema.json", text)


@pytest.mark.parametrize(
    "kind", ["reasons", "accesses", "features", "many features", "letters", "bytes"]
)
def test_huge_veils_are_refused_quickly(members, kind):
    content = pack(huge(members, kind).items())
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(VeilError, match="features" if kind == "features" else None):
        Veil.from_bytes(content)
    assert time.process_time() - started < 5
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_a_veil_that_could_not_be_loaded_is_not_written(veil, tmp_path):
    (tmp_path / "a.veil").write_bytes(b"old")
    claims = veil.statement.model_copy(update={"level": Level.END_TO_END})
    with pytest.raises(VeilError, match=r"a\.veil.*a level of answers"):
        replace(veil, statement=claims).save(tmp_path / "a.veil")
    assert (tmp_path / "a.veil").read_bytes() == b"old"


def test_who_signed_is_outside_of_the_digest_and_said(veil, key, tmp_path):
    signed = veil.signed(key)
    assert veil.signature is None
    assert signed.digest == veil.digest
    signed.save(tmp_path / "s.veil")
    again = Veil.load(tmp_path / "s.veil")
    assert again.signature == signed.signature
    assert again.signature.key == key.public
    assert signed.signed(key).to_bytes() == signed.to_bytes()
    other = SigningKey.new("Somebody else")
    assert signed.signed(other).signature.key == other.public
    short = key.public.fingerprint[:16]
    assert repr(veil).endswith(", unsigned)")
    signed = veil.signed(key)
    assert repr(signed).endswith(f", signed by key {short}…, which calls itself 'Privacy office')")
    assert "give --trust" in str(signed.signer)
    mine = PublicKey("The office next door", key.public.raw)  # my name for it counts, not its own
    trusted = signed.check_signer([SigningKey.new("a").public, mine])
    assert str(trusted.signer) == f"signed by 'The office next door' (key {short}…), trusted"
    with pytest.raises(VeilError, match="not one of the trusted keys"):
        signed.check_signer([SigningKey.new("Privacy office").public])
    with pytest.raises(VeilError, match="is not signed"):
        veil.check_signer([key.public])
    assert not signed.signed(key).signer.trusted


def test_a_wrong_signature_is_refused(tiny, key, load):
    members = members_of(tiny)
    content = json.loads(members["signature.json"])
    stranger = SigningKey.new("Privacy office")
    other = json.loads(members_of(tiny.signed(stranger))["signature.json"])
    forged = [
        {**content, "name": "Data protection authority"}, {**content, "key": other["key"]},
        {**content, "signature": other["signature"]},
        {**content, "signature": content["signature"][:-4] + "/w=="}, {**content, "more": 1},
        {"name": 1, "key": 2, "signature": 3}, {}, [],
    ]  # fmt: skip
    for each in forged:
        with pytest.raises(VeilError):
            load({**members, "signature.json": json.dumps(each, indent=2).encode()}.items())
    changed = replace(tiny, prototypes=tiny.prototypes + 1)
    with pytest.raises(VeilError, match="signature is not one under this veil"):
        Veil.from_bytes(changed.to_bytes())
    with pytest.raises(VeilError, match="signature is not one under this veil"):
        changed.check_signer([key.public])


@pytest.mark.long
def test_another_process_checks_a_signature_with_the_public_key_alone(veil, tmp_path):
    key = SigningKey.new("Privacy office")
    public = key.save(tmp_path / "office.key")
    veil.signed(SigningKey.load(tmp_path / "office.key")).save(tmp_path / "s.veil")
    (tmp_path / "office.key").unlink()
    code = (
        "import sys\n"
        "from counterveil.signature import PublicKey\n"
        "from counterveil.veil import Veil\n"
        "veil = Veil.load(sys.argv[1]).check_signer([PublicKey.load(sys.argv[2])])\n"
        "print(veil.digest, veil.signer)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s.veil"), str(public)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    key_name = key.public.fingerprint[:16]
    said = f"{veil.digest} signed by 'Privacy office' (key {key_name}…), trusted"
    assert done.stdout.strip() == said


@pytest.mark.parametrize("delta", [0.0, 1.2345678901234567e-7])
@pytest.mark.parametrize("family", ["mixed", "binary", "image"])
def test_whatever_is_released_can_be_opened(family, delta):
    """Every kind of table, records and people, shares of odd budgets: the sums must not be off."""
    label = Label(name="y", classes=("a", "b"))
    features = {
        "mixed": (Numeric(name="x0", lower=0, upper=1, integer=True), *map(bit, range(1, 4))),
        "binary": tuple(map(bit, range(12))),
        "image": (Pixels(name="x", height=4, breadth=4, levels=1),),
    }[family]
    schema = Schema(features=features, label=label)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, 2, (60, schema.width)), columns=schema.columns)
    rows = rows.assign(y=["a", "b"] * 30, who=np.arange(60) // 3)
    for epsilon in (0.1, 0.3, 0.7000000000000001, 1.2345678901234567, 50.0):
        for unit in ({}, {"unit_column": "who", "max_records": 2}):
            made = Curator(schema, **unit).release(
                rows, epsilon, delta, order=2, training=TINY, progress=False
            )
            opened = Veil.from_bytes(made.to_bytes())
            assert opened.digest == made.digest
            assert opened.statement.unit == ("person" if unit else "record")


def bit(number):
    return Binary(name=f"x{number}")


def test_drafted_and_dpsgd_veils_can_be_opened(schema, rows):
    drafted = schema.model_copy(update={"drafted": True})
    made = Curator(drafted).release(rows, 1, training=TINY, progress=False)
    assert Veil.from_bytes(made.to_bytes()).statement.level is Level.NONE
    pytest.importorskip("opacus")
    made = Curator(schema).release(
        rows, 1.1, 1e-5, mechanism="dpsgd", epochs=1, training=TINY, progress=False
    )
    opened = Veil.from_bytes(made.to_bytes())
    assert opened.statement.level is Level.NONE
    assert any("real numbers" in why for why in opened.statement.reasons)
