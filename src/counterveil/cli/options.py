"""Options that several commands share, and the values that `explain` makes of its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

from counterveil.errors import RequestError
from counterveil.terminal import class_named, out, print_json, say, wrote

if TYPE_CHECKING:
    from counterveil.models import TargetModel
    from counterveil.privacy import Budget
    from counterveil.schema import Schema
    from counterveil.search import Explanations


def option(default: Any, what: str, *names: str, **limits: Any) -> Any:
    """An option of a command: default (... if it must be given), help text, names, limits."""
    return Option(default, *names, help=what, **limits)


def seed_option(what_for: str) -> Any:
    """A seed that every generator of random numbers accepts, with its help text."""
    return option(0, what_for, min=0, max=2**31 - 1)


JSON = option(False, "Print JSON for machines.", "--json")
DEVICE = option("cpu", "cpu, cuda, mps, or auto for the best there is.")


def one_of(option: str, given: str, *known: str) -> Any:
    """`given` if it is among `known`; otherwise an error that names the option."""
    if given not in known:
        raise RequestError(f"{option} must be one of: {', '.join(known)}")
    return given


@dataclass(frozen=True)
class ModelOptions:
    """What the command line says about the target model."""

    file: Path | None
    trust_pickle: bool
    inputs: str
    outputs: str
    classes: str | None
    epsilon: float | None
    delta: float

    @property
    def warm_file(self) -> Path | None:
        """Where the search that was learnt for the model is kept: beside it, as MODEL.warm."""
        return None if self.file is None else self.file.with_name(self.file.name + ".warm")

    def load(self, schema: Schema) -> TargetModel:
        """The model of the file, adapted to `schema`."""
        from counterveil.models import load_model

        inputs = one_of("--model-input", self.inputs, "auto", "rows", "encoding")
        outputs = one_of("--model-outputs", self.outputs, "auto", "logits", "probabilities")
        if self.file is None:
            raise RequestError("give --model FILE, or --guidance surrogate to consult none")
        classes = None
        if self.classes is not None:
            known = schema.label.classes
            classes = [class_named(text, known) for text in self.classes.split(",")]
        return load_model(
            self.file,
            schema,
            trust_pickle=self.trust_pickle,
            inputs=inputs,
            outputs=outputs,
            classes=classes,
        )

    def budget(self, guidance: str) -> Budget | None:
        """The privacy budget that the model was trained with, as declared; None without one."""
        from counterveil.privacy import Budget

        if self.epsilon is None:
            if self.delta:
                raise RequestError("--model-delta needs --model-epsilon")
            return None
        if guidance == "surrogate":
            raise RequestError("--guidance surrogate consults no model: leave --model-epsilon out")
        return Budget(self.epsilon, self.delta)


@dataclass(frozen=True)
class Results:
    """Where the explanations go: a file of rows, an HTML page, the terminal or JSON on it."""

    rows: Path | None
    page: Path | None
    show: int
    as_json: bool

    def check(self, *inputs: Path | None) -> None:
        """Refuse files that cannot be written or that are inputs, before any work is done."""
        from counterveil.files import check_output

        for path in self._files:
            check_output(path, *inputs)
        if self.rows is not None and self.rows.suffix.lower() not in {".csv", ".parquet", ".json"}:
            raise RequestError(f"--out {self.rows}: name the file .csv, .parquet or .json")

    def deliver(self, result: Explanations) -> None:
        """Write the files, and print the first explanations or everything as JSON."""
        from counterveil.files import write_whole
        from counterveil.report import explanation_table, explanations_page

        if self.rows is not None:
            result.save(self.rows)
        if self.page is not None:
            write_whole(self.page, explanations_page(result).encode())
        if self.as_json:
            print_json(result.to_dict())
            return
        for query in result.found[: self.show]:
            out.print(explanation_table(result, int(query)))
        say(result.headline)
        for path in self._files:
            wrote(path)
        say(result.statement.headline, "dim")

    @property
    def _files(self) -> list[Path]:
        return [path for path in (self.rows, self.page) if path is not None]
