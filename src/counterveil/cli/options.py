"""Options that several commands share."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from typer import Option

from counterveil.cluster import Cluster, Engine
from counterveil.errors import RequestError
from counterveil.files import check_output, is_same_file
from counterveil.hints import either

if TYPE_CHECKING:
    from counterveil.models import ModelFile
    from counterveil.schema import Schema
    from counterveil.veil import Veil

MODEL, CHANGES = "The model", "What may change"  # titles of groups of options
PARTS, OUTPUT = "Large tables", "What is written"
USUAL_CODES = "0 done; 2 something given is wrong, one line says what; 3 a fault of counterveil."


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


def manual(reads: str, *examples: str, codes: str = USUAL_CODES) -> str:
    """The end of a command's help: what it reads and writes, examples of its use, exit codes."""
    lines = [f"[b]Reads[/b] {reads}", "[b]Examples[/b]"]
    lines += [escape(f"$ counterveil {example}") for example in examples]
    return "\n\n".join([*lines, f"[b]Exit codes[/b] {codes}"])


def seed_option(what_for: str, panel: str | None = None) -> Any:
    """A seed that every generator of random numbers accepts, with its help text."""
    return option(0, what_for, panel=panel, min=0, max=2**31 - 1)


TRUST = option(
    None, "A public key (.pub): refuse veils that are not signed by one of them; repeat for more."
)
JSON = option(False, "Print JSON for machines.", "--json")
TRUST_PICKLE = option(
    False, "Open .pkl, .joblib, .pt and more: can run any code.", "--trust-pickle", panel=MODEL
)
MODEL_INPUT = option(
    "auto",
    "What the model was fitted on: rows, encoding, or auto.",
    values=("auto", "rows", "encoding"),
    panel=MODEL,
)
MODEL_OUTPUTS = option(
    "auto",
    "What a torch or ONNX model answers: logits, probabilities, auto.",
    values=("auto", "logits", "probabilities"),
    panel=MODEL,
)
MODEL_CLASSES = option(
    None, "The classes of the model's columns in order: no,yes; of one column: yes.", panel=MODEL
)
OVERWRITE = option(False, "Replace the file that is there.", "--overwrite")
DEVICE = option(
    "cpu", "cpu, cuda, mps, or auto for the best there is.", values=("auto", "cpu", "cuda", "mps")
)
ON = option(
    "here",
    "here, or ray: on all processors, or on the machines of a Ray cluster.",
    values=("here", "ray"),
    panel=PARTS,
)
RAY_ADDRESS = option(
    None, "With --on ray: a cluster that runs already, such as HOST:6379 or auto.", panel=PARTS
)
WORKERS = option(None, "With --on ray: how many; by default one a processor.", min=1, panel=PARTS)


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


def check_ending(path: Path | None, *endings: str) -> None:
    """Refuse a file of --out whose name ends otherwise."""
    if path is not None and path.suffix.lower() not in endings:
        raise RequestError(f"--out {path}: name the file {either(endings)}")


def one_of(option: str, given: str, *known: str) -> Any:
    """`given` if it is among `known`; otherwise an error that names the option."""
    if given not in known:
        raise RequestError(f"{option} must be one of: {', '.join(known)}")
    return given


def model_file(
    path: Path,
    schema: "Schema",
    inputs: str,
    outputs: str,
    classes: str | None,
    *,
    trust_pickle: bool,
) -> "ModelFile":
    """The model that a command names, with its other options on models; it is not opened yet."""
    from counterveil.models import ModelFile

    names = None if classes is None else classes.split(",")
    options = {
        "trust_pickle": trust_pickle,
        "inputs": one_of("--model-input", inputs, "auto", "rows", "encoding"),
        "outputs": one_of("--model-outputs", outputs, "auto", "logits", "probabilities"),
        "classes": names and [schema.label.class_called(name) for name in names],
    }
    return ModelFile(path, options)


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


def engine_of(on: str, address: str | None, workers: int | None) -> Engine | Cluster:
    """What --on, --ray-address and --workers mean together."""
    if one_of("--on", on, "here", "ray") == "here":
        if address is not None or workers is not None:
            raise RequestError("--ray-address and --workers need --on ray")
        return "here"
    return Cluster(address, workers)


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
