"""Options that several commands share, one by one or in groups."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from typer import CallbackParam, Option, Typer

from counterveil.cluster import Cluster, Engine
from counterveil.errors import RequestError
from counterveil.files import check_output, check_table_file, is_same_file
from counterveil.hints import either

if TYPE_CHECKING:
    from counterveil.curator import Curator
    from counterveil.models import ModelFile
    from counterveil.schema import Schema
    from counterveil.search import Explainer
    from counterveil.veil import Veil

MODEL, CHANGES = "The model", "What may change"  # titles of groups of options
PARTS, OUTPUT = "Large tables", "What is written"
OTHER_CODES = "2 something given is wrong, one line says what; 3 a fault of counterveil."


def option(
    default: Any,
    what: str,
    *names: str,
    values: Sequence[str] = (),
    panel: str | None = None,
    **limits: Any,
) -> Any:
    """An option of a command: default (... if it must be given), help text, names, limits.

    `values`: what a shell may complete it with. `panel`: the title that the help lists it under.
    """
    if values:
        limits["autocompletion"] = lambda: list(values)
    return Option(default, *names, help=what, rich_help_panel=panel, **limits)


def manual(reads: str, *examples: str, codes: str = "0 done") -> str:
    """The end of a command's help: what it reads and writes, examples of its use, exit codes."""
    lines = [f"[b]Reads[/b] {reads}", "[b]Examples[/b]"]
    lines += [escape(f"$ counterveil {example}") for example in examples]
    return "\n\n".join([*lines, f"[b]Exit codes[/b] {codes}; {OTHER_CODES}"])


def seed_option(what_for: str) -> Any:
    """A seed that every generator of random numbers accepts, with its help text."""
    return option(0, what_for, min=0, max=2**31 - 1)


def choice(default: str | None, what: str, *values: str) -> Any:
    """An option with one of these values; another one is refused."""

    def check(told: CallbackParam, given: str | None) -> str | None:
        if given not in (None, *values):
            raise RequestError(f"{told.opts[0]} must be one of: {', '.join(values)}")
        return given

    return option(default, what, values=values, callback=check)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the options of a group wherever one of its parameters is the group.

    A group is a dataclass of options; its `panel` is the title that the help lists them under.
    """
    own = signature(command).parameters.values()
    groups: dict[str, Any] = {
        each.name: each.annotation for each in own if is_dataclass(each.annotation)
    }
    if not groups:
        return command

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    found: list[Parameter] = []
    for each in own:
        of_group = signature(each.annotation).parameters.values() if each.name in groups else ()
        for one in of_group:
            one.default.rich_help_panel = getattr(each.annotation, "panel", None)
        found += of_group or [each]
    options = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in found]
    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def command(app: Typer, name: str, reads: str, *examples: str, **how: str) -> Callable[..., Any]:
    """Makes a function the command of this name, with its groups of options and its manual."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        app.command(name, epilog=manual(reads, *examples, **how))(with_groups(function))
        return function

    return add


TRUST = option(
    None, "A public key (.pub): refuse veils that are not signed by one of them; repeat for more."
)
JSON = option(False, "Print JSON for machines.", "--json")
LEDGER = option(None, "The ledger with the account of these rows; see counterveil ledger open.")
DATASET = option(None, "Its name in the ledger; by default the schema's.")
OTHER_ROWS = option(False, "These are other people than those of an account that looks the same.")
OVERWRITE = option(False, "Replace the file that is there.", "--overwrite")
DEVICE = option(
    "cpu", "cpu, cuda, mps, or auto for the best there is.", values=("auto", "cpu", "cuda", "mps")
)


@dataclass(frozen=True)
class OfVeil:
    """A veil, and who must have signed it."""

    veil: Path = option(..., "A veil file.")
    trust: list[Path] | None = TRUST

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""
        return self.veil, *(self.trust or ())

    def open(self) -> "Veil":
        """The veil; where keys are given, it must be signed by one of them."""
        return open_veil(self.veil, self.trust)


@dataclass(frozen=True)
class OfModel:
    """A model, and how it is read."""

    panel = MODEL
    model: Path | None = option(
        None,
        "The model: .pt2, .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM); "
        "pickles: see --trust-pickle. Without one: the veil's private model.",
    )
    trust_pickle: bool = option(
        False, "Open .pkl, .joblib, .pt and more: can run any code.", "--trust-pickle"
    )
    model_input: str = choice(
        "auto", "What the model was fitted on: rows, encoding, or auto.", "auto", "rows", "encoding"
    )
    model_outputs: str = choice(
        "auto",
        "What a torch or ONNX model answers: logits, probabilities, auto.",
        *("auto", "logits", "probabilities"),
    )
    model_classes: str | None = option(
        None, "The classes of the model's columns in order: no,yes; of one column: yes."
    )

    def file(self, schema: "Schema") -> "ModelFile | None":
        """The model that is named, which is not opened yet; None where there is none."""
        from counterveil.models import ModelFile

        if self.model is None:
            return None
        names = None if self.model_classes is None else self.model_classes.split(",")
        how = {
            "trust_pickle": self.trust_pickle,
            "inputs": self.model_input,
            "outputs": self.model_outputs,
            "classes": names and [schema.label.class_called(name) for name in names],
        }
        return ModelFile(self.model, how)

    def explainer(self, veil: "Veil", guidance: Any = "model", **how: Any) -> "Explainer":
        """Explains this model, or else the private one of the veil."""
        from counterveil.search import Explainer

        model = None if guidance == "surrogate" else self.file(veil.schema)
        return Explainer(veil, model, guidance=guidance, **how)


@dataclass(frozen=True)
class OfChanges:
    """What may change."""

    panel = CHANGES
    immutable: list[str] | None = option(None, "A feature that must stay; repeat for more.")
    rules: Path | None = option(
        None,
        "A JSON file: one object for all queries, or a list with one a query; with immutable, "
        "may_change, direction, allowed, transitions, steps, relations, together, only_one, "
        "max_changes, costs (docs/rules.md).",
    )
    max_changes: int | None = option(None, "Change at most so many features.", min=1)

    @property
    def said(self) -> dict[str, Any]:
        """The same as an Explainer takes it."""
        rules = read_rules(self.rules, self.max_changes)
        return {"rules": rules, "immutable": self.immutable or ()}


@dataclass(frozen=True)
class OfRows:
    """Whose private rows they are, and the account that pays for them."""

    ledger: Path | None = LEDGER
    dataset: str | None = DATASET
    unit_column: str | None = option(None, "Who a record belongs to: protects people, not records.")
    max_records: int | None = option(
        None, "Of each person, at most so many records are used. [1]", min=1
    )

    def curator(self, schema: "Schema", **how: Any) -> "Curator":
        """The curator of these rows."""
        from counterveil.curator import Curator

        return Curator(
            schema,
            ledger=self.ledger,
            dataset=self.dataset,
            unit_column=self.unit_column,
            max_records=self.max_records,
            **how,
        )


@dataclass(frozen=True)
class OfParts:
    """Where parts of large tables are worked on."""

    panel = PARTS
    on: str = choice(
        "here",
        "here, or ray: on all processors, or on the machines of a Ray cluster.",
        *("here", "ray"),
    )
    ray_address: str | None = option(
        None, "With --on ray: a cluster that runs already, such as HOST:6379 or auto."
    )
    workers: int | None = option(
        None, "With --on ray: how many; by default one a processor.", min=1
    )

    @property
    def engine(self) -> Engine | Cluster:
        """What these mean together."""
        if self.on == "ray":
            return Cluster(self.ray_address, self.workers)
        if self.ray_address is not None or self.workers is not None:
            raise RequestError("--ray-address and --workers need --on ray")
        return "here"


def check_outputs(outputs: dict[str, Path | None], *inputs: Path | None) -> None:
    """Refuse files that cannot be written, are inputs, or are one file twice, before any work.

    `outputs`: the file of each option; None stands for one that was not asked for.
    """
    seen: list[tuple[str, Path]] = []
    for name, path in outputs.items():
        if path is None:
            continue
        check_output(path, *inputs)
        for other, taken in seen:
            if is_same_file(path, taken):
                raise RequestError(f"{other} and {name} are the same file; give each its own")
        seen.append((name, path))


def check_table(path: Path | None) -> None:
    """Refuse a table that is not there, before any work; folders and addresses are seen later."""
    if path is not None and place_of(path) == path and not path.is_dir():
        check_table_file(path)


def check_ending(path: Path | None, *endings: str) -> None:
    """Refuse a file of --out whose name ends otherwise."""
    if path is not None and path.suffix.lower() not in endings:
        raise RequestError(f"--out {path}: name the file {either(endings)}")


@contextmanager
def needs_serve(command: str) -> Iterator[None]:
    """Around imports: say what to install where a package of the extra "serve" is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing == "counterveil":
            raise
        install = "pip install 'counterveil[serve]'"
        raise RequestError(f"{command} needs {missing}: {install}") from None


def place_of(path: Path) -> str | Path:
    """The address that a path was given as, s3://bucket/rows, or the path itself."""
    address = re.fullmatch(r"([a-z][a-z0-9+.-]+):/+(.*)", str(path))
    if address is None:
        return path
    start = "///" if address[1] == "file" else "//"
    return f"{address[1]}:{start}{address[2]}"


def open_veil(path: Path, trust: list[Path] | None) -> "Veil":
    """The veil at `path`; where keys are given, it must be signed by one of them."""
    from counterveil.signature import PublicKey
    from counterveil.veil import Veil

    keys = [PublicKey.load(file) for file in trust or ()]
    veil = Veil.load(path)
    return veil.check_signer(keys) if keys else veil


def read_rules(path: Path | None, max_changes: int | None = None) -> Any:
    """The Rules of the JSON file at `path`, each with the limit of the command line."""
    from counterveil.files import read_bytes
    from counterveil.search import Rules

    def with_limit(content: Any) -> Rules:
        if isinstance(content, dict) and max_changes is not None:
            content = {**content, "max_changes": max_changes}
        return Rules.of_mapping(content)

    if path is None:
        return None if max_changes is None else with_limit({})
    try:
        content = json.loads(read_bytes(path, "file of rules", RequestError))
    except (ValueError, RecursionError):
        raise RequestError(f"--rules {path}: not JSON") from None
    if isinstance(content, list):
        return [with_limit(each) for each in content]
    return with_limit(content)
