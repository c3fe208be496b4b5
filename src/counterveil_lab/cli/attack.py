"""Attacks on a veil and a model of one's own."""

from dataclasses import dataclass
from pathlib import Path

from counterveil.cli.options import OfModel, check_outputs, option, with_groups
from counterveil_lab.cli.shared import PAGE, QUICK, app, one_line_errors

FILES = ".pt2, .skops, .onnx, .ubj or .json (XGBoost), .txt (LightGBM)"


@dataclass(frozen=True)
class Attacked(OfModel):
    """The model that is attacked."""

    model: Path = option(..., f"The model: {FILES}; pickles: see --trust-pickle.")


@app.command()
@with_groups
def attack(
    *,
    veil: Path = option(..., "A veil file."),
    model: Attacked,
    data: Path = option(..., "The rows that model and veil were made from: .csv or .parquet."),
    others: Path = option(..., "Rows of the same kind that neither has seen, with the label."),
    quick: bool = QUICK,
    page: Path = option(Path("attack.html"), PAGE, "--out"),
    attribute: str = option("race", "The column of categories that the attacker tries to infer."),
) -> None:
    """Attack your own veil and model: extraction, membership, attributes, linkage.

    The numbers go beside the page as .json. With --quick fewer rows, queries and shadows.
    """
    from counterveil.errors import RequestError
    from counterveil.tables import read_table
    from counterveil.terminal import progress_line, say, wrote
    from counterveil.veil import Veil

    def told(words: str, done: int, total: int) -> None:
        say(f"· {words}", "dim")
        progress_line("attack", done, total, words)

    with one_line_errors():
        import sklearn  # noqa: F401 - needed after some minutes; it is missed at once

        from counterveil_lab.attacks import suite

        if page.suffix.lower() not in {".html", ".htm"}:
            raise RequestError(f"--out {page}: name the page .html")
        numbers = page.with_suffix(".json")
        read = (veil, model.model, data, others)
        check_outputs({"--out": page, "the numbers beside it": numbers}, *read)
        loaded = Veil.load(veil)
        target = model.file(loaded.schema)
        assert target is not None, "--model must be given"
        findings = suite.attack(
            loaded,
            target.load(loaded.schema),
            read_table(data, loaded.schema),
            read_table(others, loaded.schema),
            quick=quick,
            attribute=attribute,
            told=told,
        )
        for words in findings.verdicts:
            say(words)
        for path in findings.save(page):
            wrote(path)
        say("What is promised: " + loaded.statement.headline, "dim")
