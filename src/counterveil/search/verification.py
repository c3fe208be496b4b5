"""Checking the certificate of an answer again, with veil, model and the row that was asked about.

In this order; what comes later is only looked at where all before it holds:

1. the signature, and whether a trusted key made it;
2. the digests of veil and model, and the rules, if some are expected;
3. the row: that it is the one which the certificate is about;
4. the answer: that the schema and the rules allow it, and that the model decides as it says, about
   the row and about the answer; and the same of both ends, or all values, of every region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from counterveil.errors import DataError, RequestError
from counterveil.models import Rows
from counterveil.schema import Schema
from counterveil.search.constraints.bounds import box_around
from counterveil.search.constraints.rules import Rules
from counterveil.search.results.certificate import Certificate, row_digest
from counterveil.search.results.tables import cells_of
from counterveil.search.results.wording import same
from counterveil.signature import CERTIFICATE, PublicKey, Signer, signer_dict, signer_line

AnExplainer = Any  # of class `Explainer`, whose module imports this one
Row = dict[str, Any]
IN_MEMORY = {"kind": "in memory"}  # of a model that any model of a file may be
ANOTHER_ROW = "the query: the certificate is about another row"


@dataclass(frozen=True)
class Verdict:
    """What became of checking a certificate.

    - `refusals`: what differs, a sentence each; none where all that was checked holds.
    - `complete`: whether the answer itself was checked, and not signature and digests alone.
    - `signer`: who signed it; None if nobody did.
    - `asked`: which model was asked.
    """

    refusals: tuple[str, ...]
    complete: bool
    signer: Signer | None
    asked: str

    @property
    def holds(self) -> bool:
        """Whether nothing that was checked differs."""
        return not self.refusals

    @property
    def text(self) -> str:
        """The same in a line."""
        if self.refusals:
            return f"refused: {'; '.join(self.refusals)}"
        if not self.complete:
            return "signature and digests hold; the answer was not checked: that needs the row"
        held = f"the answer is legal, within its rules, and accepted by {self.asked}"
        return f"holds: {held}; {signer_line(self.signer)}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        told = {"holds": self.holds, "complete": self.complete, "refusals": list(self.refusals)}
        return told | {"signature": signer_dict(self.signer)}


def verify(
    explainer: AnExplainer,
    certificate: Certificate,
    query: Any = None,
    *,
    rules: Rules | None = None,
    trusted: Sequence[PublicKey] = (),
) -> Verdict:
    """Check a certificate; this is `Explainer.verify`."""
    content, (signer, wrong) = certificate.content, _signature(certificate, trusted)
    rows: list[Row] = []
    if query is not None:
        cells = cells_of(Rows.of_frame(query, explainer.encoding).frame, explainer.veil.schema)
        rows = [dict(zip(cells, each, strict=True)) for each in zip(*cells.values(), strict=True)]
    try:
        wrong += _digests(explainer, content, rules)
        if not wrong and query is not None:
            salt, digest = content["query"]["salt"], content["query"]["sha256"]
            row = next((each for each in rows if row_digest(salt, each) == digest), None)
            wrong = _differences(explainer, content, row) if row else [ANOTHER_ROW]
    except (KeyError, TypeError, AttributeError, RequestError):
        wrong.append("the certificate: its content is not that of an answer")
    asked = explainer.decided_by.asked
    if certificate.content["model"] == IN_MEMORY:
        asked += " that was given (the certificate names no file of a model)"
    return Verdict(tuple(wrong), query is not None and not wrong, signer, asked)


def _signature(
    certificate: Certificate, trusted: Sequence[PublicKey]
) -> tuple[Signer | None, list[str]]:
    signature, signer = certificate.signature, certificate.signer
    if signature is None or signer is None:
        return None, ["the signature: there is none"] if trusted else []
    if not signature.holds_for(certificate.signed_bytes, CERTIFICATE):
        return signer, ["the signature: not one under this certificate; something was changed"]
    key = next((each for each in trusted if each.raw == signature.key.raw), None)
    if key is not None:
        return Signer(key.name, key.fingerprint, trusted=True), []
    other = f"the signature: by key {signer.fingerprint[:16]}…, which is no trusted key"
    return signer, [other] if trusted else []


def _digests(explainer: AnExplainer, content: Row, rules: Rules | None) -> list[str]:
    """In which of veil, model and rules the certificate differs from what is given."""
    origin, wrong, schema = explainer._builder.origin, [], explainer.veil.schema
    if content["veil"] != origin["veil"]:
        wrong.append(f"the veil: the certificate is about another one, {content['veil'][:16]}…")
    named, given = content["model"], origin["model"]
    if named != given and not (named == IN_MEMORY and given["kind"] == "file"):
        told = " ".join(str(each)[:16] for each in named.values())
        wrong.append(f"the model: the certificate is about another one ({told})")
    if rules is not None and content["rules"] != rules.of_table(schema).to_dict(schema):
        wrong.append("the rules: the certificate names others than those given")
    return wrong


def _differences(explainer: AnExplainer, content: Row, row: Row) -> list[str]:
    """In what the answer to a row is not as the certificate says, a sentence each."""
    if not content["changes"]:
        return ["the answer: it changes nothing"]
    for change in content["changes"]:
        if change["column"] not in row or not same(row[change["column"]], change["from"]):
            return [f"the answer: {change['column']!r} is not {change['from']!r} in the row"]
    after = row | {change["column"]: change["to"] for change in content["changes"]}
    rows = {"the answer": after}
    for region in content["region"]:
        column, own, values = region["column"], after[region["column"]], region.get("values")
        ends = [region["low"], region["high"]] if values is None else values
        if not (ends[0] <= own <= ends[1] if values is None else own in values):
            return [f"the region of {column!r}: the answer lies outside of it"]
        for end in ends:
            each = with_value(explainer.veil.schema, after, column, end)
            rows[f"the region of {column!r}, at {end}"] = each
    illegal = {name: _broken(explainer, row, each, content["rules"]) for name, each in rows.items()}
    wrong = [f"{name}: {why}" for name, why in illegal.items() if why]
    if wrong:
        return wrong
    expected = dict.fromkeys(rows, content["asked_for"])
    if content["before"] is not None:
        rows, expected = rows | {"the row": row}, expected | {"the row": content["before"]}
    said = explainer.model.ask(Rows.of_frame([*rows.values()], explainer.encoding))
    classes = explainer.veil.schema.label.classes
    decided = {name: classes[each] for name, each in zip(rows, said.argmax(dim=1), strict=True)}
    return [
        f"{name}: the model decides {decided[name]}, not {wanted}"
        for name, wanted in expected.items()
        if decided[name] != wanted
    ]


def _broken(explainer: AnExplainer, row: Row, answer: Row, rules: Row) -> str:
    """Which rule an answer to a row breaks, or that the schema does not allow it; or nothing."""
    encoding = explainer.encoding
    asked, given = (Rows.of_frame([each], encoding) for each in (row, answer))
    single = {f"it breaks the rule {name}": {name: rules[name]} for name in rules}
    every = {"the schema does not allow it": {}, **single, "it breaks the rules": rules}
    try:
        for words, some in every.items():
            kept = Rules.of_mapping(some)
            box = box_around(encoding, asked.encoded, kept)
            if not explainer._builder.legal(asked, given, kept, box).all():
                return words
    except DataError as error:
        return f"the schema does not allow it ({error})"
    return ""


def with_value(schema: Schema, row: Row, column: str, value: Any) -> Row:
    """The row with another value in a column; what follows that column follows."""
    linked = {link.derived: link.values[value] for link in schema.links if link.source == column}
    return row | {column: value} | linked
