"""`counterveil verify`: certificates of answers, checked again."""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Exit

from counterveil.cli import options
from counterveil.cli.options import open_veil, option, read_rules
from counterveil.errors import RequestError
from counterveil.hints import named
from counterveil.terminal import print_json, say

if TYPE_CHECKING:
    from counterveil.models import ModelFile
    from counterveil.search import Explainer
    from counterveil.search.results.certificate import Certificate
    from counterveil.veil import Veil


def verify(
    *,
    file: Path = Argument(..., help="A certificate, or a file with one a line."),
    veil: Path = option(..., "The veil that the answer was made with."),
    model: options.OfModel,
    query: Path | None = option(
        None, "A table with the row that was asked about: .csv, .parquet, .arrow or .xlsx."
    ),
    where: list[str] | None = option(
        None, "NAME=VALUE; repeat for more. The row itself, or which rows of --query."
    ),
    rules: Path | None = option(None, "The rules that must have been in force, a JSON file."),
    trust: list[Path] | None = option(
        None, "A public key (.pub) that must have signed the certificate; repeat for more."
    ),
    as_json: bool = options.JSON,
) -> None:
    """Check the certificates of answers: signature, veil, model, rules, and the answer itself.

    The answer is checked with the row that was asked about (--query or --where): it must be legal
    under the schema, within the rules, and accepted by the model, and so must its region. Without
    the row only signature and digests are. Exit code 1 where a certificate is refused.
    """
    from counterveil.cli.where import asked_rows
    from counterveil.search.results.certificate import Certificate
    from counterveil.signature import PublicKey

    certificates = Certificate.load(file)
    trusted = [PublicKey.load(each) for each in trust or ()]
    opened = open_veil(veil, None)
    asked_for = read_rules(rules)
    if isinstance(asked_for, list):
        raise RequestError(f"--rules {rules}: give the rules of one query, an object")
    rows = asked_rows(query, where, opened.schema) if query or where else None
    given = model.file(opened.schema)
    made: dict[str, Explainer] = {}
    verdicts = []
    for each in certificates:
        about = repr(each.content["model"])
        if about not in made:
            made[about] = _explainer(each, opened, given)
        verdicts.append(made[about].verify(each, rows, rules=asked_for, trusted=trusted))
    if as_json:
        print_json([verdict.to_dict() for verdict in verdicts])
    else:
        told: dict[str, list[int]] = {}
        for number, verdict in enumerate(verdicts, 1):
            told.setdefault(verdict.text, []).append(number)
        for text, some in told.items():
            which = f"{len(some)} of {len(verdicts)} (lines {named(some)}): "
            say(f"{which if len(verdicts) > 1 else ''}{text}")
    if not all(verdict.holds for verdict in verdicts):
        raise Exit(1)


def _explainer(certificate: "Certificate", veil: "Veil", model: "ModelFile | None") -> "Explainer":
    """Asks the model that a certificate names: the one given, or the veil's own."""
    from counterveil.search import Explainer

    model_named = certificate.content["model"]
    if model_named.get("kind") == "stand-in":
        return Explainer(veil, guidance="surrogate")
    if model_named.get("kind") == "private model":
        return Explainer(veil, model or veil.model(model_named.get("classes")))
    if model is None:
        raise RequestError("the certificate is about a model of your own: give --model")
    return Explainer(veil, model)
