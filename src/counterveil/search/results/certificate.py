"""Certificates: what proves an answer later, without the row that was asked about.

A certificate is one line of JSON in one way of writing: keys in order, no spaces, numbers as they
were given out. It names the answer (what changes, in which region, from which decision to which),
the rules, and what the answer was made with: veil, model, version of counterveil. Of the row it
holds the values that change, and a salted SHA-256 of all of it.

The salt keeps two certificates of one row from being recognised as such. It hides nothing from who
holds the certificate: who can guess a row can try it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterveil.errors import RequestError
from counterveil.files import CERTIFICATE_FILES, Place, read_bytes, write_whole
from counterveil.search.results.answer import as_records
from counterveil.search.results.wording import DecidedBy
from counterveil.signature import CERTIFICATE, Signature, Signer, SigningKey

if TYPE_CHECKING:
    from counterveil.search.results.explanations import Explanations

FORMAT = "counterveil-certificate 1"
KEYS = {"format", "counterveil", "veil", "model", "query", "before", "asked_for", "changes"}
KEYS |= {"region", "rules"}


@dataclass(frozen=True)
class Certificate:
    """The certificate of one answer.

    `content`, as plain values:

    - `format`, `counterveil`: of the certificate, and the version that made it.
    - `veil`: its digest.
    - `model`: its `kind`, and the `sha256` of a file; a model in memory has none.
    - `query`: `salt`, and `sha256` of salt and row.
    - `before`, `asked_for`: the decision about the row, None where no model was asked for it, and
      the one that the answer has.
    - `changes`: records of `column`, `from` and `to`.
    - `region`: records as `Explanations.region_of` gives them; empty where it is not known.
    - `rules`: as a JSON file of rules has them.
    """

    content: dict[str, Any]
    signature: Signature | None = None

    @classmethod
    def of(
        cls, result: Explanations, query: int, answer: int = 0, key: SigningKey | None = None
    ) -> Certificate:
        """The certificate of an answer, at these positions; signed where a `key` is given."""
        at = result.at(query, answer)
        if not result.valid[at] or result.origin is None:
            raise RequestError(f"query {query + 1} has no answer {answer + 1} to certify")
        before, asked_for = result.classes_of(query, answer)
        salt = secrets.token_hex(16)
        content = {
            "format": FORMAT,
            "counterveil": version("counterveil"),
            **result.origin,
            "query": {"salt": salt, "sha256": row_digest(salt, result.query_of(query))},
            "before": None if result.decided_by is DecidedBy.STAND_IN else before,
            "asked_for": asked_for,
            "changes": as_records(result.changes_of(query, answer)),
            "region": result.region_of(query, answer),
            "rules": result.rules[query].to_dict(result.schema),
        }
        made = cls(content)
        return cls(content, key.sign(made.signed_bytes, CERTIFICATE)) if key else made

    @property
    def signed_bytes(self) -> bytes:
        """What is signed: all but the signature."""
        return _canonical(self.content)

    @property
    def text(self) -> str:
        """All of it, as one line."""
        signed = {} if self.signature is None else {"signature": self.signature.to_dict()}
        return _canonical(self.content | signed).decode()

    @property
    def signer(self) -> Signer | None:
        """Who signed it, as far as is known without keys that are trusted."""
        key = self.signature and self.signature.key
        return Signer(key.name, key.fingerprint, trusted=False) if key else None

    @classmethod
    def of_text(cls, text: str) -> Certificate:
        """Read one line; a RequestError unless it would be written alike."""
        try:
            content: Any = json.loads(text)
            signed = content.pop("signature", None)
            found = cls(content, None if signed is None else Signature.of_dict(signed))
            is_whole = content.keys() == KEYS and type(content["model"]) is dict
            if is_whole and content["format"] == FORMAT and found.text == text.strip():
                return found
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
        raise RequestError("no certificate as this counterveil writes them; ask for it again")

    @classmethod
    def load(cls, path: Place) -> list[Certificate]:
        """All certificates of a file, one a line."""
        lines = read_bytes(path, "certificate", RequestError).decode("utf-8", "replace").split("\n")
        some = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if not some:
            raise RequestError(f"{path} holds no certificate")
        found = []
        for number, line in some:
            try:
                found.append(cls.of_text(line))
            except RequestError as error:
                raise RequestError(f"{path}, line {number}: {error}") from None
        return found


def is_file(place: Place) -> bool:
    """Whether certificates go to a file, by its name, and not to a folder."""
    return Path(place).suffix.lower() in CERTIFICATE_FILES


def save_certificates(result: Explanations, place: Place, key: SigningKey | None = None) -> None:
    """Write the certificates of all answers that were found.

    To a file, X.jsonl, one a line; otherwise to a folder, a file each.
    """
    made = {}
    for query, rank in (divmod(at, result.k) for at in result.valid.nonzero()[0].tolist()):
        more = f"-answer-{rank + 1}" if result.k > 1 else ""
        line = result.certificate(query, rank, key).text + "\n"
        made[f"query-{query + 1}{more}.json"] = line.encode()
    if is_file(place):
        write_whole(place, b"".join(made.values()))
    else:
        for name, content in made.items():
            write_whole(Path(place) / name, content)


def row_digest(salt: str, row: dict[str, Any]) -> str:
    """SHA-256 of salt and row, a plain value for each column."""
    return hashlib.sha256(salt.encode() + _canonical(row)).hexdigest()


def _canonical(content: Any) -> bytes:
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8", "surrogatepass")
