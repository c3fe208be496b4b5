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
FIRST, *OTHERS = (path.stem for path in NOTEBOOKS)
# A path below a root, a home, a drive; not "/" in prose, nor in the base64 of a picture.
ABSOLUTE = re.compile(
    r"(?<![\w./<])/(?:home|work|tmp|usr|root|var|opt|mnt|private|Users)/|\b[A-Z]:\\|~/"
)


def texts_in(output):
    """What an output shows as text; pictures are not text."""
    shown = output.get("data", {}) | {"stream": output.get("text", "")}
    return ["".join(text) for kind, text in shown.items() if not kind.startswith("image/")]


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_every_cell_runs_and_shows_what_is_stored(name):
    line = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "--toy", name]
    done = subprocess.run(line, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_a_notebook_with_outputs_of_one_run_of_this_code(path):
    """Whoever changes the code of a notebook runs it again: make notebooks."""
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert set(content["metadata"]) == {"counterveil", "kernelspec", "language_info"}
    names = [cell["id"] for cell in content["cells"]]
    assert len(set(names)) == len(names)
    for cell in content["cells"]:
        more = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | more
        assert cell["metadata"] == {}, "no times and no tags"
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    text = "\0".join("".join(cell["source"]) for cell in code)
    told = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert content["metadata"]["counterveil"] == {"code": told}
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert len(outputs) >= len(code) // 2
    assert any("image/png" in output.get("data", {}) for output in outputs)
    for output in outputs:
        assert output["output_type"] in {"stream", "execute_result"}
        assert output.get("name", "stdout") == "stdout"
        for text in texts_in(output):
            assert not ABSOLUTE.search(text)
            assert str(Path.home()) not in text
            assert "Traceback" not in text
            assert not re.search(r"0x[0-9a-f]{6,}", text), "an address in memory"


def test_the_search_for_paths_finds_paths():
    assert all(map(ABSOLUTE.search, ("/home/ann/x", "in /tmp/a", "C:\\data", "~/x")))
    assert not any(map(ABSOLUTE.search, ("ε/2 and/or", "</td>", "docs/privacy.md")))
