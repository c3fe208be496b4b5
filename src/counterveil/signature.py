"""Ed25519 keys and signatures: who vouches for a veil, or for the certificate of an answer.

A key pair is two files of one line each: the signing key, which stays with its owner, and the
public key, which everybody may have:

    counterveil-signing-key BASE64 NAME
    counterveil-public-key BASE64 NAME

The name is what the owner calls itself. Anybody can make a key with any name: trust a public key
because of how it reached you, and compare its fingerprint.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from counterveil.errors import RequestError, VeilError
from counterveil.files import Place, read_bytes
from counterveil.text_rules import check_text

# What is signed as one of these is never valid as the other, nor anywhere else.
VEIL = b"counterveil veil signature 1\n"
CERTIFICATE = b"counterveil certificate signature 1\n"
SIGNING, PUBLIC = "counterveil-signing-key", "counterveil-public-key"
LONGEST_NAME = 100  # characters
LONGEST_FILE = 4096  # bytes
PRIME = 2**255 - 19  # of Ed25519, the curve −x² + y² = 1 + d·x²·y²
CURVE = -121_665 * pow(121_666, -1, PRIME) % PRIME  # its d
UNSIGNED = "unsigned: anybody could have made this file"


@dataclass(frozen=True)
class PublicKey:
    """A public key: the name that its owner claims, and its 32 bytes."""

    name: str
    raw: bytes

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.raw) != 32:
            raise ValueError("a key has 32 bytes")
        if _is_weak(self.raw):
            raise ValueError("a weak key, under which anybody can sign")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key, in hexadecimal: compare it by telephone."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def line(self) -> str:
        """The content of its file."""
        return f"{PUBLIC} {_base64(self.raw)} {self.name}\n"

    @classmethod
    def load(cls, path: Place) -> PublicKey:
        """Read the file of a public key."""
        kind, key = open_key(path)
        if kind != "public key":
            raise RequestError(f"{path} is a signing key: keep it secret, and give its .pub file")
        return key


@dataclass(frozen=True)
class SigningKey:
    """A key that signs. Printing it does not show it."""

    name: str
    raw: bytes = field(repr=False)

    @classmethod
    def new(cls, name: str) -> SigningKey:
        """A fresh key from the operating system's entropy."""
        try:
            _check_name(name)
        except ValueError as error:
            raise RequestError(f"the name of a key: {error}") from None
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> PublicKey:
        """What others need to check its signatures."""
        private = Ed25519PrivateKey.from_private_bytes(self.raw)
        return PublicKey(self.name, private.public_key().public_bytes_raw())

    def sign(self, manifest: bytes, kind: bytes = VEIL) -> Signature:
        """The signature under the manifest of a veil, and with it under all of the veil.

        `kind`: `CERTIFICATE` where it is the text of a certificate.
        """
        private = Ed25519PrivateKey.from_private_bytes(self.raw)
        return Signature(self.public, private.sign(_signed_bytes(kind, self.name, manifest)))

    def save(self, path: Place) -> Path:
        """Write the signing key to `path`, for its owner alone, and the public key beside it.

        The public key's file ends in .pub instead. Neither file is ever overwritten. Returns the
        public key's file.
        """
        target = Path(path)
        beside = target.with_suffix(".pub")
        if target.suffix == ".pub":
            raise RequestError(f"{path}: .pub is for the public key; name it X.key")
        for each in (target, beside):
            if os.path.lexists(each):
                raise RequestError(f"{each} exists, and a key is never overwritten; name another")
        _write_new(target, f"{SIGNING} {_base64(self.raw)} {self.name}\n", 0o600)
        try:
            _write_new(beside, self.public.line, 0o644)
        except RequestError:
            target.unlink()  # half a pair is of no use
            raise
        return beside

    @classmethod
    def load(cls, path: Place) -> SigningKey:
        """Read the file of a signing key."""
        kind, name, raw = _read(path)
        if kind != SIGNING:
            raise RequestError(f"{path} is a public key, which cannot sign; give the .key file")
        return cls(name, raw)


@dataclass(frozen=True)
class Signature:
    """A signature: by which key, under the name that the signer claims."""

    key: PublicKey
    value: bytes

    def holds_for(self, manifest: bytes, kind: bytes = VEIL) -> bool:
        """Whether the owner of the key signed this manifest under this name, as this kind."""
        try:
            public = Ed25519PublicKey.from_public_bytes(self.key.raw)
            public.verify(self.value, _signed_bytes(kind, self.key.name, manifest))
        except InvalidSignature:
            return False
        return True

    def signer(self, trusted: PublicKey | None) -> Signer:
        """Who signed, as every surface says it; `trusted`: the key that was found to be known."""
        key = trusted or self.key
        return Signer(key.name, key.fingerprint, trusted is not None)

    def to_dict(self) -> dict[str, str]:
        """Name, key and signature as texts."""
        key, value = _base64(self.key.raw), _base64(self.value)
        return {"name": self.key.name, "key": key, "signature": value}

    @classmethod
    def of_dict(cls, content: Any) -> Signature:
        """Read the texts; a ValueError unless they would be written alike."""
        names = ("name", "key", "signature")
        if not isinstance(content, dict) or not all(type(content.get(n)) is str for n in names):
            raise ValueError("a signature needs a name, a key and a signature")
        name, key, value = (content[n] for n in names)
        signature = cls(PublicKey(name, base64.b64decode(key)), base64.b64decode(value))
        if signature.to_dict() != content:
            raise ValueError("the signature is not written as signatures are")
        return signature

    def to_json(self) -> bytes:
        """The member `signature.json` of a veil file."""
        return json.dumps(self.to_dict(), indent=2).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Signature:
        """Read the member; a ValueError unless it would be written alike."""
        signature = cls.of_dict(json.loads(text))
        if signature.to_json() != text:
            raise ValueError("the signature is not written as signatures are")
        return signature


@dataclass(frozen=True)
class Signer:
    """Who signed, as every surface says it. Only a trusted signer's name is known."""

    name: str
    fingerprint: str
    trusted: bool

    def __str__(self) -> str:
        key = f"key {self.fingerprint[:16]}…"
        if self.trusted:
            return f"signed by {self.name!r} ({key}), trusted"
        return f"signed by {key}, which calls itself {self.name!r}; give --trust to check it"


def signer_line(signer: Signer | None) -> str:
    """Who signed, in one line; None: nobody did."""
    return UNSIGNED if signer is None else str(signer)


def signer_dict(signer: Signer | None) -> dict[str, Any]:
    """Who signed, for JSON."""
    return {
        "signed": signer is not None,
        "trusted": signer is not None and signer.trusted,
        "name": signer and signer.name,
        "key": signer and signer.fingerprint,
        "text": signer_line(signer),
    }


def trusted_key(
    signature: Signature | None, trusted: Sequence[PublicKey], manifest: bytes
) -> PublicKey:
    """The one of the `trusted` keys that signed the manifest of a veil; otherwise a VeilError."""
    if signature is None:
        raise VeilError("the veil is not signed; ask its maker to sign it")
    for key in trusted:
        if key.raw == signature.key.raw:
            if not signature.holds_for(manifest):
                raise VeilError("the signature is not one under this veil; ask for it again")
            return key
    raise VeilError(
        f"the veil is signed by key {signature.key.fingerprint[:16]}…, which is not one of the "
        "trusted keys; give --trust the public key of its maker"
    )


def _signed_bytes(kind: bytes, name: str, manifest: bytes) -> bytes:
    """The name is one line, so that no other name and manifest give the same bytes."""
    return kind + name.encode() + b"\n" + manifest


def _check_name(name: str) -> None:
    check_text(name, one_line=True, longest=LONGEST_NAME)
    if not name or name != name.strip():
        raise ValueError("a name must not be empty, nor start or end with a space")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def open_key(path: Place) -> tuple[str, PublicKey]:
    """The file of a key of either kind: what it is, in words, and the public key."""
    kind, name, raw = _read(path)
    if kind == SIGNING:
        return "signing key", SigningKey(name, raw).public
    try:
        return "public key", PublicKey(name, raw)
    except ValueError as error:
        raise RequestError(f"{path}: {error}; ask for another key") from None


def _read(path: Place) -> tuple[str, str, bytes]:
    """Kind, name and 32 bytes in the file of a key. The message never shows the content."""
    content = read_bytes(path, "key", RequestError, most=LONGEST_FILE)
    try:
        kind, key, name = content.decode().rstrip("\r\n").split(" ", 2)
        raw = base64.b64decode(key, validate=True)
        _check_name(name)
        if kind in {SIGNING, PUBLIC} and len(raw) == 32:
            return kind, name, raw
    except ValueError:  # also what is raised for text that is no UTF-8 or no base64
        pass
    raise RequestError(f"{path} is no key of counterveil; see counterveil keys new")


def _write_new(path: Path, line: str, mode: int) -> None:
    """Write a new file that has the rights `mode` from the start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as stream:
            os.chmod(path, mode)  # whatever the umask takes away
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}") from None


def _is_weak(raw: bytes) -> bool:
    """Whether a public key is a point whose order divides 8, or is written with digits too many.

    Signatures under such points can be made without any secret. The points of order 1, 2 and 4 are
    those with y = 1, −1 and 0. Twice a point of order 8 has y = 0, so that x² = −y² there.
    """
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    return y >= PRIME or y in (0, 1, PRIME - 1) or (CURVE * y**4 + 2 * y * y - 1) % PRIME == 0
