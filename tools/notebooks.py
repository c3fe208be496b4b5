"""Runs the notebooks of examples/ and keeps their outputs fresh.

    python tools/notebooks.py                     run them as they are, and store the new outputs
    python tools/notebooks.py 01-loan-decisions   the same for one
    python tools/notebooks.py --toy               run them at toy size, and compare

At toy size nothing is stored. It fails if a cell raises or warns, and if what a cell shows is of
another form than what is stored: other kinds of output, or a table with other columns. Numbers may
differ, for the noise of a release takes no seed. `make notebooks` runs the first.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = "ROWS, EPOCHS, QUERIES"  # what the first code cell sets
TOY = {
    "01-loan-decisions": (3000, 2, 12),
    "02-images": (600, 1, 4),
    "03-any-model": (3000, 2, 6),
}
STRICT = """import warnings
for kind in (DeprecationWarning, FutureWarning, RuntimeWarning, UserWarning):
    warnings.simplefilter("error", kind)
"""


def code_of(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def digest_of(notebook: Any) -> str:
    """Names the code that outputs belong to."""
    sources = "\0".join(cell.source for cell in code_of(notebook))
    return hashlib.sha256(sources.encode()).hexdigest()[:16]


def executed(notebook: Any, sizes: tuple[int, ...] | None = None) -> Any:
    """A copy with the outputs of a run in an empty folder; an error of a cell is raised."""
    copy = nbformat.from_dict(notebook)
    first = code_of(copy)[0]
    written = first.source
    if sizes is not None:
        line = f"{SIZES} = {', '.join(map(str, sizes))}"
        first.source, replaced = re.subn(rf"^{SIZES} = .*$", line, written, flags=re.MULTILINE)
        if replaced != 1:
            raise SystemExit(f"the first code cell does not set {SIZES}")
        first.source = STRICT + first.source
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        NotebookClient(copy, timeout=3600, resources={"metadata": {"path": folder}}).execute()
    first.source = written
    return cleaned(copy)


def cleaned(notebook: Any) -> Any:
    """Without times, without lines on standard error and without bars of progress."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = joined(each for each in cell.outputs if is_kept(each))
            for output in cell.outputs:
                output.get("metadata", {}).clear()
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    told = {"code": digest_of(notebook)}
    notebook.metadata = {
        "kernelspec": kernel,
        "language_info": {"name": "python"},
        "counterveil": told,
    }
    return notebook


def is_kept(output: Any) -> bool:
    """Whether a reader should find this output: a bar of progress is empty once it is done."""
    is_note = output.get("name") == "stderr"
    is_empty = output.output_type == "display_data" and not any(output.data.values())
    return not (is_note or is_empty)


def joined(outputs: Iterable[Any]) -> list[Any]:
    """Pieces of what was printed as one output: where a kernel cuts it is chance."""
    kept: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and kept and kept[-1].output_type == "stream":
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def form_of(cell: Any) -> list[Any]:
    """What a cell shows, but for numbers and words: kinds of output, columns of tables."""
    shown = []
    for output in cell.outputs:
        data = output.get("data", {})
        heads = re.findall(r"<thead>.*?</thead>", data.get("text/html", ""), re.DOTALL)
        columns = [re.findall(r"<th>(.*?)</th>", head) for head in heads]
        shown.append((output.output_type, sorted(data), columns))
    return shown


def run(path: Path, *, toy: bool) -> list[str]:
    """Run one notebook; what is stale in it, at toy size."""
    stored = nbformat.read(path, as_version=4)
    fresh = executed(stored, TOY[path.stem] if toy else None)
    if not toy:
        path.write_text(nbformat.writes(fresh).rstrip("\n") + "\n", encoding="utf-8")
        return []
    pairs = zip(code_of(stored), code_of(fresh), strict=True)
    return [
        f"{path.name}: code cell {number} shows {form_of(now)}, and {form_of(before)} is stored"
        for number, (before, now) in enumerate(pairs, 1)
        if form_of(before) != form_of(now)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=sorted(TOY))
    parser.add_argument("--toy", action="store_true")
    asked = parser.parse_args()
    stale = [
        each for name in asked.names for each in run(EXAMPLES / f"{name}.ipynb", toy=asked.toy)
    ]
    if stale:
        sys.exit("\n".join([*stale, "refresh them: make notebooks"]))


if __name__ == "__main__":
    main()
