"""The notebooks of examples/: every cell runs, at toy size, and the stored outputs are fit to show.

Without jupyter: a notebook is JSON, and its code cells are run in order in one namespace.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
NAMES = "ROWS, EPOCHS, QUERIES, WARM_STEPS"
TOY = {
    "01-loan-decisions": (3000, 2, 12, 60),
    "02-images": (600, 1, 4, 30),
    "03-any-model": (3000, 2, 6, 60),
}
# A path below a root, a home, a drive; not "/" in prose, nor in the base64 of a picture.
ABSOLUTE = re.compile(
    r"(?<![\w./<])/(?:home|work|tmp|usr|root|var|opt|mnt|private|Users)/|\b[A-Z]:\\|~/"
)
RUNNER = """
import json, sys, traceback, warnings
import matplotlib
matplotlib.use("Agg")
warnings.simplefilter("error")
namespace = {"__name__": "__main__"}
for number, code in json.load(sys.stdin):
    try:
        exec(compile(code, f"cell {number}", "exec"), namespace)
    except Exception:
        traceback.print_exc()
        sys.exit(f"cell {number} failed")
"""


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def codes_of(path):
    """The number and the text of every code cell."""
    return [
        (number, "".join(cell["source"]))
        for number, cell in enumerate(cells_of(path))
        if cell["cell_type"] == "code"
    ]


def at_toy_size(path):
    """The code cells, with the sizes of the first one replaced."""
    (number, first), *others = codes_of(path)
    sizes = f"{NAMES} = {', '.join(map(str, TOY[path.stem]))}"
    small, replaced = re.subn(rf"^{NAMES} = .*$", sizes, first, flags=re.MULTILINE)
    assert replaced == 1, "the first code cell sets the sizes"
    return [(number, small), *others]


def outputs_of(path):
    return [output for cell in cells_of(path) for output in cell.get("outputs", ())]


def texts_in(output):
    """What an output shows as text; pictures are not text."""
    shown = output.get("data", {}) | {"stream": output.get("text", "")}
    return ["".join(text) for kind, text in shown.items() if not kind.startswith("image/")]


def test_every_notebook_has_a_toy_size():
    assert [path.stem for path in NOTEBOOKS] == sorted(TOY)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(at_toy_size(path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
    assert set(content["metadata"]) == {"kernelspec", "language_info"}


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
        ("/home/ann/x", True),
        ("in /tmp/a", True),
        ("C:\\data", True),
        ("~/x", True),
        ("ε/2 and/or", False),
        ("</td>", False),
        ("docs/privacy.md", False),
    ],
)
def test_the_search_for_paths_finds_paths(text, found):
    assert bool(ABSOLUTE.search(text)) is found
