"""The notebooks of examples/: every cell runs, at toy size, and the stored outputs are fit to show.

`tools/notebooks.py` runs them in a kernel of Jupyter; `make notebooks` stores new outputs.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# A path below a root, a home, a drive; not "/" in prose, nor in the base64 of a picture.
ABSOLUTE = re.compile(
    r"(?<![\w./<])/(?:home|work|tmp|usr|root|var|opt|mnt|private|Users)/|\b[A-Z]:\\|~/"
)


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def codes_of(path):
    """The text of every code cell."""
    return ["".join(cell["source"]) for cell in cells_of(path) if cell["cell_type"] == "code"]


def outputs_of(path):
    return [output for cell in cells_of(path) for output in cell.get("outputs", ())]


def texts_in(output):
    """What an output shows as text; pictures are not text."""
    shown = output.get("data", {}) | {"stream": output.get("text", "")}
    return ["".join(text) for kind, text in shown.items() if not kind.startswith("image/")]


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_and_shows_what_is_stored(path):
    line = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "--toy", path.stem]
    done = subprocess.run(line, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_of_this_code(path):
    """Whoever changes the code of a notebook runs it again: make notebooks."""
    told = json.loads(path.read_text(encoding="utf-8"))["metadata"]["counterveil"]
    digest = hashlib.sha256("\0".join(codes_of(path)).encode()).hexdigest()
    assert told == {"code": digest[:16]}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_a_notebook(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in content["cells"]]
    assert len(set(names)) == len(names)
    for cell in content["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | code
        assert cell["metadata"] == {}, "no times and no tags"
    assert set(content["metadata"]) == {"counterveil", "kernelspec", "language_info"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_of_one_run_and_hold_pictures(path):
    code = [cell for cell in cells_of(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert len(outputs_of(path)) >= len(code) // 2
    assert any("image/png" in output.get("data", {}) for output in outputs_of(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_hold_no_error_and_no_path(path):
    for output in outputs_of(path):
        assert output["output_type"] in {"stream", "execute_result"}
        assert output.get("name", "stdout") == "stdout"
        for text in texts_in(output):
            assert not ABSOLUTE.search(text)
            assert str(Path.home()) not in text
            assert "Traceback" not in text
            assert not re.search(r"0x[0-9a-f]{6,}", text), "an address in memory"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/home/ann/x", True), ("in /tmp/a", True), ("C:\\data", True), ("~/x", True),
        ("ε/2 and/or", False), ("</td>", False), ("docs/privacy.md", False),
    ],
)  # fmt: skip
def test_the_search_for_paths_finds_paths(text, found):
    assert bool(ABSOLUTE.search(text)) is found
