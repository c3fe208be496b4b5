"""The file of a veil: its format, and all that can be read without its networks.

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

`VeilFile` stops before the networks: it is read in a moment, without torch.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError

from counterveil.errors import SchemaError, VeilError
from counterveil.files import read_bytes
from counterveil.privacy import Statement
from counterveil.privacy.consistency import check_statement
from counterveil.privacy.record import NoisyRecord, from_members
from counterveil.schema import Schema
from counterveil.schema.schema import MOST_FEATURES
from counterveil.signature import PublicKey, Signature, Signer, trusted_key

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
class VeilFile:
    """What the file of a veil says besides its networks, checked as far as that goes.

    `members`: their bytes by name. `manifest`: sizes of the networks, and digests.
    """

    members: dict[str, bytes]
    manifest: dict[str, Any]
    schema: Schema
    statement: Statement
    record: NoisyRecord | None
    signature: Signature | None
    trusted: PublicKey | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> VeilFile:
        """Read a file; a VeilError where it is none of a veil."""
        with refusing(str(path)):
            return cls.read(cls.content(path))

    @staticmethod
    def content(path: str | os.PathLike[str]) -> bytes:
        """The bytes of a file, and one too many of a file that is too large."""
        return read_bytes(path, "veil", VeilError, LARGEST_FILE + 1)

    @classmethod
    def read(cls, content: bytes) -> VeilFile:
        """What the content of a file says; within `refusing`."""
        members = _members_of(content)
        schema = _read_schema(members["schema.json"])
        statement = Statement.model_validate_json(members["statement.json"])
        record = from_members(members)
        check_statement(statement, schema, record)
        signature = None
        if SIGNATURE in members:
            signature = Signature.from_json(members[SIGNATURE])
            if not signature.holds_for(members[MANIFEST]):
                raise VeilError("its signature is not one under this veil; ask for it again")
        told = {
            "schema.json": schema.to_json(),
            "statement.json": statement.model_dump_json(indent=2),
        }
        if any(members[name] != text.encode() for name, text in told.items()):
            raise VeilError("not written as counterveil writes veils; ask for it again")
        manifest = _read_manifest(members[MANIFEST])
        return cls(members, manifest, schema, statement, record, signature)

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the signature: the name under which it can be cited."""
        return sha256(self.members[MANIFEST])

    @property
    def signer(self) -> Signer | None:
        """Who signed it; None if nobody did."""
        return None if self.signature is None else self.signature.signer(self.trusted)

    def check_signer(self, trusted: Sequence[PublicKey]) -> VeilFile:
        """The same, known to be signed by one of the keys; a VeilError if it is not."""
        key = trusted_key(self.signature, trusted, self.members[MANIFEST])
        return replace(self, trusted=key)


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn whatever is wrong with the content of a file into a VeilError that names the file."""
    try:
        yield
    except VeilError as error:
        raise VeilError(f"{name}: {error}") from None
    except (SchemaError, ValidationError, SafetensorError, RecursionError, ValueError):
        raise VeilError(f"{name}: its content is not that of a veil; ask for another") from None


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pack(members: dict[str, bytes]) -> bytes:
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


def _members_of(content: bytes) -> dict[str, bytes]:
    """The members, each as its digest says, of a file that is packed as `pack` does it."""
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
        if manifest["sha256"].get(name) != sha256(members[name]):
            raise VeilError(f"member {name} was changed or damaged: its SHA-256 does not match")
    if pack(members) != content:
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
    if surrogate is not None and (not isinstance(surrogate, dict) or len(surrogate) != 1):
        raise VeilError("its manifest gives no usable surrogate")
    return {
        "hidden": _sizes(manifest.get("hidden")),
        "surrogate": {kind: _sizes(sizes) for kind, sizes in (surrogate or {}).items()},
        "generator": manifest.get("generator"),
        "sha256": digests if isinstance(digests, dict) else {},
    }


def _sizes(hidden: Any) -> tuple[int, ...]:
    sizes = tuple(hidden) if isinstance(hidden, list) and len(hidden) <= 16 else ()
    if not sizes or not all(type(size) is int and 1 <= size <= 1 << 16 for size in sizes):
        raise VeilError("its manifest gives no usable layer sizes")
    return sizes
