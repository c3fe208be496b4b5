"""The Veil: what the curator releases, and its file.

A veil file is a zip, nothing compressed, of these members in this order and nothing that can run:

    manifest.json        format, version, layer sizes, SHA-256 of the next five members
    schema.json          the public description of the table
    statement.json       what is promised about the rows
    weights.safetensors  the autoencoder, the class prototypes and, if there, the surrogate f~ and
                         the generator of images
    record.json          how the noisy integers were made, or null where there are none
    record.safetensors   the noisy integers
    signature.json       who vouches for it: a signature under the manifest; may be left out

A veil has one file: the same veil gives the same bytes, and only these bytes are read. Loading
trusts nothing. Whatever would not be written alike, members that are too large, wrong digests,
wrong shapes, numbers that are not finite, a record that does not fit the schema, a statement that
contradicts the file (`check_statement`) and a wrong signature are refused with a `VeilError`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from counterveil.errors import RequestError, SchemaError, VeilError
from counterveil.files import read_bytes, write_whole
from counterveil.hints import named
from counterveil.networks import AsImages, Autoencoder, classifier, convolutional, sizes_of
from counterveil.pages import notebook_table
from counterveil.population import Generator, Population, population_of
from counterveil.population.generator import GeneratorSize
from counterveil.population.whole_scorecard import Surrogate, WholeScorecard
from counterveil.privacy import Statement
from counterveil.privacy.consistency import check_statement
from counterveil.privacy.record import NoisyRecord, from_members, to_members
from counterveil.private_model import ClassWeights, PrivateModel
from counterveil.schema import Schema
from counterveil.schema.schema import MOST_FEATURES
from counterveil.signature import PublicKey, Signature, Signer, SigningKey, signer_line, trusted_key

FORMAT = "counterveil-veil"
VERSION = 7
MANIFEST, SIGNATURE = "manifest.json", "signature.json"
MEMBER_LIMITS = {  # bytes
    MANIFEST: 1 << 16,
    "schema.json": 1 << 23,
    "statement.json": 1 << 20,
    "weights.safetensors": 1 << 29,
    "record.json": 1 << 16,
    "record.safetensors": 1 << 27,
    SIGNATURE: 1 << 12,
}
LARGEST_FILE = sum(MEMBER_LIMITS.values()) + (1 << 12)
ENTRY = struct.Struct("<4s5H3L2H")  # the header of a member in a zip
REMEDY = "install the counterveil that made it, or release it again"


@dataclass(frozen=True, eq=False)
class Veil:
    """Schema, statement, noisy record and what was trained on it. Safe to ship; holds no row."""

    schema: Schema
    autoencoder: Autoencoder
    prototypes: Tensor  # (classes, latent)
    statement: Statement
    surrogate: Surrogate | None = None
    record: NoisyRecord | None = None  # of mechanism `functional`
    signature: Signature | None = None
    trusted: PublicKey | None = None  # the key that `check_signer` has found
    generator: Generator | None = None  # of images measured by random features

    def __repr__(self) -> str:
        signed = "unsigned" if self.signer is None else str(self.signer).split(";")[0]
        return f"Veil({self.schema.name!r}, {self.statement.headline}, {signed})"

    def _repr_html_(self) -> str:
        """What a notebook shows: what the veil is of, what it promises, and who signed it."""
        schema, label = self.schema, self.schema.label
        classes = named([label.shown_value(each) for each in label.classes])
        return notebook_table(
            f"Veil of {schema.name}",
            [
                ("promise", self.statement.headline),
                ("meaning", self.statement.level.meaning),
                ("label", f"{label.shown_name}: {classes}"),
                ("features", f"{len(schema.columns)} columns, {schema.width} encoded numbers"),
                ("private model", "none" if self.surrogate is None else "yes: .model()"),
                ("signature", signer_line(self.signer)),
                ("digest", self.digest),
                ("more", ".statement, .schema"),
            ],
        )

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the signature: the name under which it can be cited."""
        return hashlib.sha256(self._manifest(self._members())).hexdigest()

    @property
    def signer(self) -> Signer | None:
        """Who signed it, as every surface says it; None if nobody did."""
        if self.signature is None:
            return None
        key = self.trusted or self.signature.key
        return Signer(key.name, key.fingerprint, self.trusted is not None)

    def signed(self, key: SigningKey) -> Veil:
        """The same veil with a signature by `key`, in place of any other."""
        manifest = self._manifest(self._members())
        return replace(self, signature=key.sign(manifest), trusted=None)

    def check_signer(self, trusted: Sequence[PublicKey]) -> Veil:
        """The same veil, known to be signed by one of the keys; a VeilError if it is not."""
        key = trusted_key(self.signature, trusted)
        if self.signature is None or not self.signature.holds_for(self._manifest(self._members())):
            raise VeilError("the signature is not one under this veil; ask for it again")
        return replace(self, trusted=key)

    def population(self) -> Population:
        """P~, rebuilt from the noisy record at no privacy cost."""
        if self.record is None:
            raise RequestError(
                f"this veil has no noisy record: mechanism {self.statement.mechanism} makes none; "
                "release it by mechanism functional"
            )
        return population_of(self.schema, self.record, self.generator)

    def model(self, classes: ClassWeights | None = None) -> PrivateModel:
        """The private model f~: predict, predict_proba; unlimited questions at no further cost.

        `classes`: they weigh as they are among the people, "population", or the same, "even"; by
        default the first, and the second where the veil has no noisy record to tell the shares.
        """
        if classes is None:
            classes = "even" if self.record is None else "population"
        if classes not in get_args(ClassWeights):
            raise RequestError("classes must be 'even' or 'population'")
        if self.surrogate is None:
            raise RequestError(
                f"this veil has no private model: mechanism {self.statement.mechanism} makes none; "
                "release it by mechanism functional"
            )
        share = None if classes == "even" else self.population().class_share
        statement = self.statement.guided_by_surrogate()
        return PrivateModel(
            self.schema,
            self.surrogate,
            statement,
            class_share=share,
            veil=self.digest,
            population=None if self.record is None else self.population,
        )

    def to_bytes(self) -> bytes:
        """The content of its file; the same veil always gives the same bytes."""
        members = self._members()
        members = {MANIFEST: self._manifest(members), **members}
        if self.signature is not None:
            members[SIGNATURE] = self.signature.to_json()
        return _pack(members)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, if it is one that can be loaded."""
        content = self.to_bytes()
        Veil.from_bytes(content, str(path))
        write_whole(path, content)

    def _members(self) -> dict[str, bytes]:
        networks = self.autoencoder, self.surrogate, self.generator
        tensors = _named(*networks) | {"prototypes": self.prototypes}
        weights = {name: tensor.contiguous() for name, tensor in tensors.items()}
        return {
            "schema.json": self.schema.to_json().encode(),
            "statement.json": self.statement.model_dump_json(indent=2).encode(),
            "weights.safetensors": save_tensors(weights),
            **to_members(self.record),
        }

    def _manifest(self, members: dict[str, bytes]) -> bytes:
        further = {} if self.generator is None else {"generator": asdict(self.generator.size)}
        content = {
            "format": FORMAT,
            "version": VERSION,
            "hidden": list(self.autoencoder.hidden),
            "surrogate": None if self.surrogate is None else _shape_of(self.surrogate),
            **further,
            "sha256": {name: _sha256(content) for name, content in members.items()},
        }
        return json.dumps(content, indent=2).encode()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Veil:
        """Read a file and check all of it."""
        return cls.from_bytes(read_bytes(path, "veil", VeilError, LARGEST_FILE + 1), str(path))

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "veil") -> Veil:
        """The veil in the content of a file, all of it checked. `name` stands in the messages."""
        try:
            members = _unpack(content)
            veil = cls._of_members(members)
            if veil.signature is not None and not veil.signature.holds_for(members[MANIFEST]):
                raise VeilError("its signature is not one under this veil; ask for it again")
            if veil.to_bytes() != content:
                raise VeilError("not written as counterveil writes veils; ask for it again")
        except VeilError as error:
            raise VeilError(f"{name}: {error}") from None
        except (SchemaError, ValidationError, SafetensorError, RecursionError, ValueError):
            raise VeilError(f"{name}: its content is not that of a veil; ask for another") from None
        return veil

    @classmethod
    def _of_members(cls, members: dict[str, bytes]) -> Veil:
        manifest = _read_manifest(members[MANIFEST])
        schema = _read_schema(members["schema.json"])
        statement = Statement.model_validate_json(members["statement.json"])
        record = from_members(members)
        if record is not None:
            population_of(schema, record)  # refuses a record that does not fit
        check_statement(statement, schema, record)
        autoencoder, prototypes, surrogate, generator = _rebuild(members, manifest, schema)
        if (generator is not None) != (record is not None and record.features > 0):
            raise VeilError("random features of images need a generator, and nothing else does")
        signature = members.get(SIGNATURE)
        signed = None if signature is None else Signature.from_json(signature)
        found = autoencoder, prototypes, statement, surrogate, record, signed
        return cls(schema, *found, generator=generator)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _pack(members: dict[str, bytes]) -> bytes:
    """A zip that depends on nothing but the members: no date, no system, no compression.

    Compressed members would depend on the release of zlib.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o600 << 16
            archive.writestr(entry, content, zipfile.ZIP_STORED)
    return buffer.getvalue()


def _unpack(content: bytes) -> dict[str, bytes]:
    """The members, each as its digest says, of a file that is packed as `_pack` does it."""
    if len(content) > LARGEST_FILE:
        raise VeilError("larger than any veil can be; refused")
    members: dict[str, bytes] = {}
    at = 0
    while len(content) - at >= ENTRY.size and content[at : at + 4] == b"PK\x03\x04":
        _, _, flags, method, *_, size, name_size, extra = ENTRY.unpack_from(content, at)
        start = at + ENTRY.size + name_size
        name = content[at + ENTRY.size : start].decode("ascii", "replace")
        if name not in MEMBER_LIMITS or name in members:
            raise VeilError("not a veil file: it does not hold exactly the members of one")
        if method or flags or extra:
            raise VeilError(
                f"packed otherwise than veils of version {VERSION} are; if it is of another "
                f"version, {REMEDY}"
            )
        if size > MEMBER_LIMITS[name]:
            raise VeilError(f"member {name} is larger than it may be; refused")
        members[name] = content[start : start + size]
        at = start + size
    if not members:
        raise VeilError("damaged, cut short, or not a veil file")
    if MANIFEST in members:  # the version first: others have other members
        manifest = _read_manifest(members[MANIFEST])
    if [*members] not in ([*MEMBER_LIMITS], [*MEMBER_LIMITS][:-1]):
        raise VeilError("not a veil file: it does not hold exactly the members of one, in order")
    for name in members.keys() - {MANIFEST, SIGNATURE}:
        if manifest["sha256"].get(name) != _sha256(members[name]):
            raise VeilError(f"member {name} was changed or damaged: its SHA-256 does not match")
    if _pack(members) != content:
        raise VeilError("damaged, or packed otherwise than counterveil packs veils")
    return members


def _read_schema(text: bytes) -> Schema:
    """The schema, counted before it is built."""
    content: Any = json.loads(text)
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list) or len(features) > MOST_FEATURES:
        raise VeilError(f"its schema does not have 1 to {MOST_FEATURES} features; refused")
    return Schema.from_json(text)


def _read_manifest(text: bytes) -> dict[str, Any]:
    """Sizes of the hidden layers of both networks, and the SHA-256 of the other members."""
    try:
        manifest: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise VeilError("its manifest cannot be read; the file is damaged") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise VeilError("not a veil file: its manifest is foreign")
    if manifest.get("version") != VERSION:
        raise VeilError(
            f"this counterveil reads veils of version {VERSION}, the file has another; {REMEDY}"
        )
    digests, surrogate = manifest.get("sha256"), manifest.get("surrogate")
    generator = manifest.get("generator")
    if surrogate is not None and (not isinstance(surrogate, dict) or len(surrogate) != 1):
        raise VeilError("its manifest gives no usable surrogate")
    return {
        "hidden": _sizes(manifest.get("hidden")),
        "surrogate": {kind: _sizes(sizes) for kind, sizes in (surrogate or {}).items()},
        "generator": None if generator is None else GeneratorSize.from_manifest(generator),
        "sha256": digests if isinstance(digests, dict) else {},
    }


def _sizes(hidden: Any) -> tuple[int, ...]:
    sizes = tuple(hidden) if isinstance(hidden, list) and len(hidden) <= 16 else ()
    if not sizes or not all(type(size) is int and 1 <= size <= 1 << 16 for size in sizes):
        raise VeilError("its manifest gives no usable layer sizes")
    return sizes


def _named(
    autoencoder: Autoencoder, surrogate: Surrogate | None, generator: Generator | None
) -> dict[str, Tensor]:
    """The weights under the names that they have in a file."""
    named: dict[str, Tensor] = autoencoder.state_dict()
    for name, network in (("surrogate", surrogate), ("generator", generator)):
        further = {} if network is None else network.state_dict()
        named |= {f"{name}.{key}": part for key, part in further.items()}
    return named


def _shape_of(surrogate: Surrogate) -> dict[str, list[int]]:
    """The kind and the sizes of a surrogate, as a manifest has them."""
    if isinstance(surrogate, WholeScorecard):
        return {"scorecard": [len(surrogate.columns)]}
    kind = "convolutional" if isinstance(surrogate[0], AsImages) else "dense"
    return {kind: list(sizes_of(surrogate))}


def _surrogate_of(described: dict[str, tuple[int, ...]], schema: Schema) -> Surrogate | None:
    """An empty surrogate of the kind and the sizes of a manifest; None if it has none."""
    classes = len(schema.label.classes)
    match [*described.items()]:
        case []:
            return None
        case [("scorecard", (ways,))] if schema.family == "mixed":
            return WholeScorecard(ways, classes)
        case [("dense", hidden)]:
            return classifier(schema.width, hidden, classes)
        case [("convolutional", (_, _, _) as hidden)] if schema.images:
            return convolutional(schema.images[0], hidden, classes)
    raise VeilError("its manifest gives no usable surrogate")


def _rebuild(
    members: dict[str, bytes], manifest: dict[str, Any], schema: Schema
) -> tuple[Autoencoder, Tensor, Surrogate | None, Generator | None]:
    """Autoencoder, prototypes, surrogate and generator from the weights of a file."""
    width, classes = schema.width, len(schema.label.classes)
    tensors, described = load_tensors(members["weights.safetensors"]), manifest["surrogate"]
    with torch.device("meta"):  # shapes first, memory only for what really is in the file
        autoencoder = Autoencoder(width, manifest["hidden"])
        surrogate, generator = _surrogate_of(described, schema), None
        if manifest["generator"] is not None:  # only images have one, and a surrogate beside it
            if "convolutional" not in described:
                raise VeilError("its manifest gives no usable layer sizes")
            generator = Generator(schema.images[0], classes, manifest["generator"])
    built = _named(autoencoder, surrogate, generator)
    expected = {name: (tensor.shape, tensor.dtype) for name, tensor in built.items()}
    expected["prototypes"] = torch.Size((classes, autoencoder.latent)), torch.float32
    if {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} != expected:
        raise VeilError("its weights do not fit its schema")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise VeilError("its weights are not finite numbers")
    prototypes = tensors.pop("prototypes")
    for prefix, network in (("surrogate", surrogate), ("generator", generator)):
        if network is not None:
            mine = {name: tensors.pop(f"{prefix}.{name}") for name in network.state_dict()}
            network.load_state_dict(mine, assign=True)
            network.requires_grad_(False).eval()
    if isinstance(surrogate, WholeScorecard):
        surrogate.check(width)
    autoencoder.load_state_dict(tensors, assign=True)
    return autoencoder.requires_grad_(False).eval(), prototypes, surrogate, generator
