"""The Veil: what the curator releases, and its file.

A veil file is a zip of exactly four members and nothing that can run:

    manifest.json        format, version, layer sizes, SHA-256 of the other members
    schema.json          the public description of the table
    statement.json       what is promised about the rows
    weights.safetensors  the autoencoder, the class prototypes and, if there, the surrogate f~ and
                         the amortised search guided by it

Loading trusts nothing: other members, odd paths, repeated or oversized or encrypted members, wrong
digests, wrong shapes and numbers that are not finite are all refused with a `VeilError`.
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

from counterveil.amortiser import Amortiser
from counterveil.autoencoder import Autoencoder
from counterveil.errors import SchemaError, VeilError
from counterveil.files import read_bytes, write_whole
from counterveil.privacy import Statement
from counterveil.schema import Schema
from counterveil.training import tanh_network

FORMAT = "counterveil-veil"
VERSION = 1
MANIFEST = "manifest.json"
MEMBER_LIMITS = {
    MANIFEST: 1 << 16,
    "schema.json": 1 << 25,
    "statement.json": 1 << 20,
    "weights.safetensors": 1 << 29,
}
FILE_LIMIT = sum(MEMBER_LIMITS.values())
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same veil is the same file, to the byte


@dataclass(frozen=True, eq=False)
class Veil:
    """Autoencoder, class prototypes, schema and statement. Safe to ship; holds no row."""

    schema: Schema
    autoencoder: Autoencoder
    prototypes: Tensor
    statement: Statement
    surrogate: nn.Sequential | None = None
    amortiser: Amortiser | None = None  # guided by the surrogate

    def __repr__(self) -> str:
        return f"Veil({self.schema.name!r}, {self.statement.headline})"

    @property
    def digest(self) -> str:
        """SHA-256 over everything in the veil: the name under which it can be cited."""
        return hashlib.sha256(self._manifest(self._members())).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; the same veil always gives the same bytes."""
        members = self._members()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in {MANIFEST: self._manifest(members), **members}.items():
                entry = zipfile.ZipInfo(name, _LONG_AGO)
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        write_whole(path, buffer.getvalue())

    def _members(self) -> dict[str, bytes]:
        tensors = dict(self.autoencoder.state_dict())
        if self.surrogate is not None:
            tensors |= {f"surrogate.{k}": v for k, v in self.surrogate.state_dict().items()}
        if self.amortiser is not None:
            tensors |= {f"amortiser.{k}": v for k, v in self.amortiser.state_dict().items()}
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        return {
            "schema.json": self.schema.to_json().encode(),
            "statement.json": self.statement.model_dump_json(indent=2).encode(),
            "weights.safetensors": save_tensors(
                {**tensors, "prototypes": self.prototypes.contiguous()}
            ),
        }

    def _manifest(self, members: dict[str, bytes]) -> bytes:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "hidden": list(self.autoencoder.hidden),
            "surrogate": _hidden_of(self.surrogate),
            "amortiser": None if self.amortiser is None else [self.amortiser.hidden],
            "sha256": {name: _sha256(content) for name, content in members.items()},
        }
        return json.dumps(content, indent=2).encode()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Veil:
        """Read a file and check all of it."""
        content = read_bytes(path, "veil", VeilError)
        try:
            members = _unpack(content)
            sizes = _check_manifest(members)
            schema = Schema.from_json(members["schema.json"])
            statement = Statement.model_validate_json(members["statement.json"])
            _refuse_control_characters(json.loads(members["schema.json"]))
            _refuse_control_characters(json.loads(members["statement.json"]))
            networks = _rebuild(members["weights.safetensors"], sizes, schema)
        except VeilError as error:
            raise VeilError(f"{path}: {error}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError):
            raise VeilError(f"{path}: damaged, cut short, or not a veil file") from None
        except (SchemaError, ValidationError, SafetensorError, RecursionError, ValueError):
            raise VeilError(
                f"{path}: its content is not that of a veil; ask for it again"
            ) from None
        autoencoder, prototypes, surrogate, amortiser = networks
        return cls(schema, autoencoder, prototypes, statement, surrogate, amortiser)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _unpack(content: bytes) -> dict[str, bytes]:
    if len(content) > FILE_LIMIT:
        raise VeilError("larger than any veil can be; refused")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if sorted(names) != sorted(MEMBER_LIMITS):
            raise VeilError("not a veil file: it does not hold exactly the members of one")
        return {entry.filename: _read_member(archive, entry) for entry in entries}


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


@dataclass(frozen=True)
class _Sizes:
    """Of the hidden layers; none where there is no such network."""

    autoencoder: tuple[int, ...]
    surrogate: tuple[int, ...] | None
    amortiser: tuple[int, ...] | None


def _check_manifest(members: dict[str, bytes]) -> _Sizes:
    """Format, version and digests; returns the layer sizes."""
    try:
        manifest: Any = json.loads(members[MANIFEST])
    except (ValueError, RecursionError):
        raise VeilError("its manifest cannot be read; the file is damaged") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise VeilError("not a veil file: its manifest is foreign")
    if manifest.get("version") != VERSION:
        raise VeilError(
            f"this counterveil reads veils of version {VERSION}, the file has another; "
            "install the counterveil that made it, or release it again"
        )
    for name in MEMBER_LIMITS.keys() - {MANIFEST}:
        digests = manifest.get("sha256")
        if not isinstance(digests, dict) or digests.get(name) != _sha256(members[name]):
            raise VeilError(f"member {name} was changed or damaged: its SHA-256 does not match")
    further = (manifest.get(name) for name in ("surrogate", "amortiser"))
    return _Sizes(
        _sizes(manifest.get("hidden")),
        *(None if sizes is None else _sizes(sizes) for sizes in further),
    )


def _sizes(hidden: Any) -> tuple[int, ...]:
    if not isinstance(hidden, list) or not 1 <= len(hidden) <= 16:
        raise VeilError("its manifest gives no usable layer sizes")
    if not all(type(size) is int and 1 <= size <= 1 << 16 for size in hidden):
        raise VeilError("its manifest gives no usable layer sizes")
    return tuple(hidden)


def _hidden_of(surrogate: nn.Sequential | None) -> list[int] | None:
    if surrogate is None:
        return None
    return [layer.out_features for layer in surrogate if isinstance(layer, nn.Linear)][:-1]


def _rebuild(
    content: bytes, sizes: _Sizes, schema: Schema
) -> tuple[Autoencoder, Tensor, nn.Sequential | None, Amortiser | None]:
    classes = len(schema.label.classes)
    tensors = load_tensors(content)
    networks: dict[str, nn.Module] = {}
    with torch.device("meta"):  # shapes first, memory only for what really is in the file
        autoencoder = Autoencoder(schema.width, sizes.autoencoder)
        surrogate = amortiser = None
        if sizes.surrogate:
            surrogate = networks["surrogate."] = tanh_network(
                schema.width, sizes.surrogate, classes
            )
        if sizes.amortiser:
            amortiser = networks["amortiser."] = Amortiser(
                schema.width, classes, autoencoder.latent, sizes.amortiser[0]
            )
    expected = dict(autoencoder.state_dict())
    for prefix, network in networks.items():
        expected |= {prefix + key: tensor for key, tensor in network.state_dict().items()}
    shapes = {name: tensor.shape for name, tensor in expected.items()}
    shapes["prototypes"] = torch.Size((classes, autoencoder.latent))
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise VeilError("its weights do not fit its schema")
    for tensor in tensors.values():
        if tensor.dtype != torch.float32 or not bool(tensor.isfinite().all()):
            raise VeilError("its weights are not finite 32-bit numbers")
    prototypes = tensors.pop("prototypes")
    for prefix, network in networks.items():
        mine = {k.removeprefix(prefix): tensors.pop(k) for k in [*tensors] if k.startswith(prefix)}
        network.load_state_dict(mine, assign=True)
        network.requires_grad_(False).eval()
    autoencoder.load_state_dict(tensors, assign=True)
    return autoencoder.requires_grad_(False).eval(), prototypes, surrogate, amortiser
