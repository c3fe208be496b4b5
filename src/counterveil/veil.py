"""The Veil: what the curator releases, and its file.

A veil file is a zip of exactly six members and nothing that can run:

    manifest.json        format, version, layer sizes, SHA-256 of the other members
    schema.json          the public description of the table
    statement.json       what is promised about the rows
    weights.safetensors  the autoencoder, the class prototypes and, if there, the surrogate f~
    record.json          how the noisy integers were made, or null where there are none
    record.safetensors   the noisy integers

Loading trusts nothing: other members, odd paths, repeated or oversized or encrypted members, wrong
digests, wrong shapes, numbers that are not finite, and a record that does not fit the schema or the
statement are all refused with a `VeilError`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from counterveil.errors import RequestError, SchemaError, VeilError
from counterveil.files import read_bytes, write_whole
from counterveil.networks import Autoencoder, tanh_network
from counterveil.population import Population, population_of
from counterveil.privacy import Statement
from counterveil.privacy.record import NoisyRecord, from_members, to_members
from counterveil.schema import Schema

FORMAT = "counterveil-veil"
VERSION = 2
MANIFEST = "manifest.json"
MEMBER_LIMITS = {
    MANIFEST: 1 << 16,
    "schema.json": 1 << 25,
    "statement.json": 1 << 20,
    "weights.safetensors": 1 << 29,
    "record.json": 1 << 16,
    "record.safetensors": 1 << 27,
}


@dataclass(frozen=True, eq=False)
class Veil:
    """Schema, statement, noisy record and what was trained on it. Safe to ship; holds no row."""

    schema: Schema
    autoencoder: Autoencoder
    prototypes: Tensor  # (classes, latent)
    statement: Statement
    surrogate: nn.Sequential | None = None
    record: NoisyRecord | None = None  # of mechanism `functional`

    def __repr__(self) -> str:
        return f"Veil({self.schema.name!r}, {self.statement.headline})"

    @property
    def digest(self) -> str:
        """SHA-256 over everything in the veil: the name under which it can be cited."""
        return hashlib.sha256(self._manifest(self._members())).hexdigest()

    def population(self) -> Population:
        """P~, rebuilt from the noisy record at no privacy cost."""
        if self.record is None:
            raise RequestError(
                f"this veil has no noisy record: mechanism {self.statement.mechanism} makes none; "
                "release it by mechanism functional"
            )
        return population_of(self.schema, self.record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; the same veil always gives the same bytes."""
        members = self._members()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {MANIFEST: self._manifest(members), **members}.items():
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # whenever it is written
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        write_whole(path, buffer.getvalue())

    def _members(self) -> dict[str, bytes]:
        tensors = _named(self.autoencoder, self.surrogate) | {"prototypes": self.prototypes}
        weights = {name: tensor.contiguous() for name, tensor in tensors.items()}
        return {
            "schema.json": self.schema.to_json().encode(),
            "statement.json": self.statement.model_dump_json(indent=2).encode(),
            "weights.safetensors": save_tensors(weights),
            **to_members(self.record),
        }

    def _manifest(self, members: dict[str, bytes]) -> bytes:
        layers = [layer for layer in self.surrogate or () if isinstance(layer, nn.Linear)]
        hidden = [layer.out_features for layer in layers[:-1]]
        content = {
            "format": FORMAT,
            "version": VERSION,
            "hidden": list(self.autoencoder.hidden),
            "surrogate": None if self.surrogate is None else hidden,
            "sha256": {name: _sha256(content) for name, content in members.items()},
        }
        return json.dumps(content, indent=2).encode()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Veil:
        """Read a file and check all of it."""
        content = read_bytes(path, "veil", VeilError)
        try:
            members, manifest = _unpack(content)
            schema = Schema.from_json(members["schema.json"])
            statement = Statement.model_validate_json(members["statement.json"])
            for name in ("schema.json", "statement.json", "record.json"):
                _refuse_control_characters(json.loads(members[name]))
            record = from_members(members)
            if record is not None:
                population_of(schema, record)  # refuses a record that does not fit
                if record.accesses != statement.accesses:
                    raise VeilError("its noisy record is not the one its statement tells of")
            autoencoder, prototypes, surrogate = _rebuild(members, manifest, schema)
        except VeilError as error:
            raise VeilError(f"{path}: {error}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError):
            raise VeilError(f"{path}: damaged, cut short, or not a veil file") from None
        except (SchemaError, ValidationError, SafetensorError, RecursionError, ValueError):
            raise VeilError(
                f"{path}: its content is not that of a veil; ask for it again"
            ) from None
        return cls(schema, autoencoder, prototypes, statement, surrogate, record)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _unpack(content: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """All members, each as its digest says, and the checked entries of the manifest."""
    if len(content) > sum(MEMBER_LIMITS.values()):
        raise VeilError("larger than any veil can be; refused")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if names.count(MANIFEST) == 1:  # the version first: others have other members
            manifest = _read_manifest(_read_member(archive, archive.getinfo(MANIFEST)))
        if sorted(names) != sorted(MEMBER_LIMITS):
            raise VeilError("not a veil file: it does not hold exactly the members of one")
        members = {entry.filename: _read_member(archive, entry) for entry in entries}
    for name in MEMBER_LIMITS.keys() - {MANIFEST}:
        if manifest["sha256"].get(name) != _sha256(members[name]):
            raise VeilError(f"member {name} was changed or damaged: its SHA-256 does not match")
    return members, manifest


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    limit = MEMBER_LIMITS[entry.filename]
    if entry.flag_bits & 0x1:
        raise VeilError("holds an encrypted member; refused")
    if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise VeilError("holds a member packed in a way that veils are not; refused")
    if entry.file_size > limit:
        raise VeilError(f"member {entry.filename} is larger than it may be; refused")
    with archive.open(entry) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise VeilError(f"member {entry.filename} is larger than it says; refused")
    return content


def _refuse_control_characters(content: Any) -> None:
    """Names and texts of a veil are printed: they must not steer the terminal."""
    if isinstance(content, str):
        if any(unicodedata.category(sign) == "Cc" and sign not in "\n\t" for sign in content):
            raise VeilError("its texts hold control characters; refused")
    elif isinstance(content, (list, dict)):
        for part in [*content, *(content.values() if isinstance(content, dict) else ())]:
            _refuse_control_characters(part)


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
            f"this counterveil reads veils of version {VERSION}, the file has another; "
            "install the counterveil that made it, or release it again"
        )
    digests, surrogate = manifest.get("sha256"), manifest.get("surrogate")
    return {
        "hidden": _sizes(manifest.get("hidden")),
        "surrogate": None if surrogate is None else _sizes(surrogate),
        "sha256": digests if isinstance(digests, dict) else {},
    }


def _sizes(hidden: Any) -> tuple[int, ...]:
    sizes = tuple(hidden) if isinstance(hidden, list) and len(hidden) <= 16 else ()
    if not sizes or not all(type(size) is int and 1 <= size <= 1 << 16 for size in sizes):
        raise VeilError("its manifest gives no usable layer sizes")
    return sizes


def _named(autoencoder: Autoencoder, surrogate: nn.Sequential | None) -> dict[str, Tensor]:
    """The weights under the names that they have in a file."""
    further = {} if surrogate is None else surrogate.state_dict()
    return autoencoder.state_dict() | {f"surrogate.{key}": part for key, part in further.items()}


def _rebuild(
    members: dict[str, bytes], manifest: dict[str, Any], schema: Schema
) -> tuple[Autoencoder, Tensor, nn.Sequential | None]:
    """Autoencoder, prototypes and surrogate from the weights of a file."""
    width, classes = schema.width, len(schema.label.classes)
    tensors, hidden = load_tensors(members["weights.safetensors"]), manifest["surrogate"]
    with torch.device("meta"):  # shapes first, memory only for what really is in the file
        autoencoder = Autoencoder(width, manifest["hidden"])
        surrogate = None if hidden is None else tanh_network(width, hidden, classes)
    shapes = {name: tensor.shape for name, tensor in _named(autoencoder, surrogate).items()}
    shapes["prototypes"] = torch.Size((classes, autoencoder.latent))
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise VeilError("its weights do not fit its schema")
    for tensor in tensors.values():
        if tensor.dtype != torch.float32 or not bool(tensor.isfinite().all()):
            raise VeilError("its weights are not finite 32-bit numbers")
    prototypes = tensors.pop("prototypes")
    if surrogate is not None:
        mine = {name: tensors.pop(f"surrogate.{name}") for name in surrogate.state_dict()}
        surrogate.load_state_dict(mine, assign=True)
        surrogate.requires_grad_(False).eval()
    autoencoder.load_state_dict(tensors, assign=True)
    return autoencoder.requires_grad_(False).eval(), prototypes, surrogate
