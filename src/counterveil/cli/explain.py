"""`counterveil explain`: a veil, a model and queries; never the private rows."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Exit

from counterveil.cli import options
from counterveil.cli.options import MODEL, OUTPUT, choice, option, seed_option
from counterveil.errors import ModelError, RequestError
from counterveil.files import CERTIFICATE_FILES, read_bytes, write_whole
from counterveil.hints import either
from counterveil.terminal import out, print_json, say, warn, working, wrote

if TYPE_CHECKING:
    from counterveil.privacy import ModelBudget
    from counterveil.schema import Schema
    from counterveil.search import Explanations
    from counterveil.signature import SigningKey

MOST_LINES = 20  # about rows that are left out
ENDINGS = (".csv", ".parquet", ".json", ".xlsx", ".html")


@dataclass(frozen=True)
class OfSearch:
    """How to look for answers, as an Explainer takes it."""

    panel = "The search"
    k: int = option(1, "How many different answers a query.", "--k", min=1, max=1000)
    prefer: str | None = option(
        None,
        "believable: little effort, like people of the class, stable; nearest: the least L2 "
        "change. By default believable where the veil has a population of a mixed table or of "
        "images.",
        values=("believable", "nearest"),
    )
    margin: float | None = option(None, "How sure the model must be of an answer: 0 to below 1.")
    method: str | None = option(
        None,
        "actions: sets of actions, in mixed tables; iterations: Algorithm 2, in any. By default "
        "actions where the veil has a population of a mixed table.",
        values=("actions", "iterations"),
    )
    iterations: int | None = option(None, "Steps of Algorithm 2, at most. [300]", min=0)
    polish: bool | None = option(None, "Give back what an answer of Algorithm 2 does not need.")
    seed: int = seed_option("For the variety of several answers.")


@dataclass(frozen=True)
class OfBudget:
    """The budget of the model as its owner declares it."""

    panel = MODEL
    model_epsilon: float | None = option(None, "The ε that the model was trained with, if it was.")
    model_delta: float = option(0.0, "The same for δ.")
    model_unit: str | None = choice(
        None, "Whom that ε protects: record or person.", "record", "person"
    )
    model_relation: str | None = choice(
        None,
        "Which tables that ε compares: replace-one or add-remove.",
        *("replace-one", "add-remove"),
    )

    @property
    def said(self) -> "ModelBudget | None":
        """The same as an Explainer takes it."""
        from counterveil.privacy import ModelBudget

        unit, relation = self.model_unit, self.model_relation
        if self.model_epsilon is None:
            if self.model_delta or unit or relation:
                raise RequestError(
                    "--model-delta, --model-unit, --model-relation: needs --model-epsilon"
                )
            return None
        if unit is None or relation is None:
            raise RequestError(
                "--model-epsilon needs --model-unit (record or person) and --model-relation "
                "(replace-one or add-remove): look them up where the model was trained"
            )
        how: Any = {"unit": unit, "relation": relation}
        return ModelBudget(self.model_epsilon, self.model_delta, **how)


@dataclass(frozen=True)
class OfOutput:
    """What is written, and how."""

    panel = OUTPUT
    out_file: Path | None = option(
        None,
        "Write the rows: .csv, .xlsx, .parquet or .json; the page of --report: .html; or a folder, "
        "in parts, for tables of any size.",
        "--out",
    )
    copied: list[str] | None = option(
        None,
        "A column of the queries that goes with the answers; repeat for more. By default all "
        "that the schema does not have, such as a key.",
        *("--copy", "--id"),
    )
    raw_csv: bool = option(
        False,
        "In a .csv, leave texts as they are that a spreadsheet takes for formulas.",
        "--raw-csv",
    )
    report: Path | None = option(None, "Write an HTML page for people.")
    letters: Path | None = option(
        None, "Write a letter for each row, .txt and .html, to this folder."
    )
    mail_merge: Path | None = option(
        None, "Write a .csv of a row a person: decision, reasons, changes, letter."
    )
    language: str = option("en", "Of letters: en or de.", values=("en", "de"))
    letter_template: Path | None = option(None, "Your own template of letters (docs/letters.md).")
    certificates: Path | None = option(
        None,
        "Write a certificate of every answer, to check later with verify: a folder, a file each; "
        "or X.jsonl, one a line.",
    )
    sign: Path | None = option(None, "Sign the certificates with this key, X.key (keys new).")
    show: int = option(3, "How many explanations to print.", min=0)

    @property
    def is_folder(self) -> bool:
        """Whether --out means a folder: one that is there, or a name without an ending."""
        path = self.out_file
        if path is None or (not path.is_dir() and path.suffix.lower() in ENDINGS):
            return False
        if path.is_dir() or not path.suffix:
            return True
        raise RequestError(f"--out {path}: name the file {either(ENDINGS)}, or a folder")

    def save(self, result: "Explanations", key: "SigningKey | None") -> list[Path]:
        """Write what is asked for of the answers; what was written."""
        from counterveil.search.results.certificate import save_certificates

        if self.out_file is not None:
            result.save(self.out_file, escape=not self.raw_csv)
        if self.report is not None:
            write_whole(self.report, result.to_html().encode("utf-8", "replace"))
        if self.mail_merge or self.letters:
            self._save_letters(result)
        if self.certificates is not None:
            save_certificates(result, self.certificates, key)
        written = (self.out_file, self.report, self.certificates, self.mail_merge, self.letters)
        return [path for path in written if path is not None]

    def _save_letters(self, result: "Explanations") -> None:
        """Write letter-N.txt and letter-N.html of every query, and the table of a mail merge."""
        from counterveil.search.results.letters import Letters, as_html, mail_merge
        from counterveil.tables import file_content

        merged = self.mail_merge
        if merged is not None and merged.suffix.lower() != ".csv":
            raise RequestError(f"--mail-merge {merged}: name the file .csv")
        letters = Letters(result, self.language, self.letter_template)
        if merged is not None:
            table = mail_merge(result, letters)
            write_whole(merged, file_content(table, merged, escape=not self.raw_csv))
        for query in range(len(result)) if self.letters else ():
            text = letters.text(query)
            name = f"letter-{query + 1:0{len(str(len(result)))}}"
            for ending, content in ((".txt", text), (".html", as_html(text, self.language))):
                write_whole(Path(self.letters or "") / f"{name}{ending}", content.encode())


def explain(
    *,
    veil: options.OfVeil,
    queries: Path | None = option(None, "Rows to explain: .csv, .parquet, .arrow or .xlsx."),
    where: list[str] | None = option(
        None,
        "NAME=VALUE; repeat for more. With --queries: only the rows that have these values, in any "
        "column. Without: the row itself, with a value for every feature; an empty one is missing.",
    ),
    model: options.OfModel,
    guidance: str = option(
        "model",
        "model, or surrogate: never asks the model that decides, the private one stands in.",
        values=("model", "surrogate"),
        panel=MODEL,
    ),
    target: str | None = option(
        None, "The class to reach; by default the model's second most likely one."
    ),
    changes: options.OfChanges,
    search: OfSearch,
    device: str = options.DEVICE,
    budget: OfBudget,
    part_rows: int = option(50_000, "Rows of a part.", min=1, max=1_000_000, panel=options.PARTS),
    parts: options.OfParts,
    output: OfOutput,
    as_json: bool = options.JSON,
) -> None:
    """Explain the model's decision on each query: what would have to change?

    Without --model, the veil's private model decides and is explained: answers are private in the
    training rows, end to end.

    Where --out is a folder (it is one, or ends in /), Parquet files are explained part by part, in
    constant memory; the same command goes on after it was cut off. With --on ray several workers do
    so.
    """
    from counterveil.signature import SigningKey

    engine = parts.engine
    to_folder = output.is_folder
    certificates = output.certificates
    for_one_run = output.report or output.letters or output.mail_merge or certificates
    no_model = budget.model_epsilon is not None and not (model.model and guidance != "surrogate")
    mistakes = {
        "a folder of answers is for --queries of many rows, without --where, --report, --letters, "
        "--mail-merge and --certificates": to_folder and (for_one_run or where or not queries),
        "--on ray is for answers in parts: give --out a folder": engine != "here" and not to_folder,
        "--sign signs certificates: give --certificates, too": output.sign and not certificates,
        "no target model is consulted: leave --model-epsilon out": no_model,
    }
    for words, is_so in mistakes.items():
        if is_so:
            raise RequestError(words)
    outputs = {"--out": None if to_folder else output.out_file, "--report": output.report}
    outputs["--mail-merge"] = output.mail_merge
    if certificates is not None and certificates.suffix.lower() in CERTIFICATE_FILES:
        outputs["--certificates"] = certificates
    read = (queries, model.model, changes.rules, output.letter_template, output.sign)
    options.check_outputs(outputs, *veil.files, *read)
    key = None if output.sign is None else SigningKey.load(output.sign)
    declared = budget.said
    schema = _schema_of(veil, model, None if to_folder else queries, guidance, changes)
    goal = None if target is None else schema.label.classes[schema.label.number_of(target)]
    working("loading what the search needs")
    import pandas as pd

    from counterveil.cli.where import asked_rows, without_bad_rows

    opened = veil.open()
    rows, refused = pd.DataFrame(), list[str]()
    if not to_folder:
        rows, refused = without_bad_rows(asked_rows(queries, where, schema), schema)
    explainer = model.explainer(opened, guidance, model_budget=declared, device=device)
    asked: dict[str, Any] = {**changes.said, **asdict(search), "copied": output.copied or None}
    if to_folder:
        asked |= {"engine": engine, "part_rows": part_rows}
        places = options.place_of(queries or Path()), options.place_of(output.out_file or Path())
        summary = explainer.explain_files(*places, goal, **asked)
        if as_json:
            print_json(asdict(summary))
            return
        say(summary.headline)
        say(explainer.decided_by.meaning)
        wrote(Path(summary.folder))
        say(explainer.statement.headline, "dim")
        return
    result = explainer.explain(rows, goal, **asked)
    written = output.save(result, key)
    if as_json:
        print_json(result.to_dict() | ({"refused": refused} if refused else {}))
    else:
        _show(result, output.show, written)
    if refused:
        _report(refused)
        raise Exit(1)


def _schema_of(
    veil: options.OfVeil,
    model: options.OfModel,
    queries: Path | None,
    guidance: str,
    changes: options.OfChanges,
) -> "Schema":
    """The schema of the veil, after what can be refused before torch takes seconds to load."""
    from counterveil.veil_file import VeilFile

    options.check_table(queries)
    if model.model is not None and guidance != "surrogate":
        read_bytes(model.model, "model", ModelError, 0)
    schema = VeilFile.load(veil.veil).schema
    for name in changes.immutable or ():
        schema.feature(name)
    return schema


def _show(result: "Explanations", most: int, written: list[Path]) -> None:
    """Print the first `most` answers, how the search went, and what was written."""
    from counterveil.report import explanation_table
    from counterveil.signature import signer_line

    for query in result.found[:most]:
        out.print(explanation_table(result, int(query)))
    say(result.headline)
    say(result.decided_by.meaning)
    for path in written:
        wrote(path)
    say(result.statement.headline, "dim")
    say(f"the veil is {signer_line(result.signer)}", "dim")


def _report(refused: list[str]) -> None:
    """Say which rows were left out, a line each, and how many."""
    for line in refused[:MOST_LINES]:
        warn(line)
    rows = "row was" if len(refused) == 1 else "rows were"
    warn(f"{len(refused)} {rows} left out; mend what is said above, and ask about them again")
