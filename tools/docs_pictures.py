"""Makes the pictures of docs/img that no test of pages makes: reports and an answer.

    counterveil demo
    python tools/docs_pictures.py demo

The others are made by COUNTERVEIL_PICTURES=docs/img pytest tests/browser. It needs chromium.
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from counterveil import Explainer
from counterveil.curator import Curator
from counterveil.demo.adult import adult_schema, adult_split
from counterveil_lab.report.page import write

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
COLOURS = 128


def save(content: bytes, name: str) -> None:
    picture = Image.open(io.BytesIO(content)).convert("RGB").quantize(COLOURS)
    picture.save(IMAGES / f"{name}.png", optimize=True)


def shoot(page: Page, file: Path, name: str, height: int, at: str = "body") -> None:
    """The top of a page, or what begins at an element, `height` pixels high."""
    page.set_viewport_size({"width": 1280, "height": height})
    page.goto(file.absolute().as_uri())
    page.locator(at).first.evaluate("each => each.scrollIntoView({behavior: 'instant'})")
    save(page.screenshot(), name)


def answer(demo: Path) -> None:
    """Of the answers with two changes and every twin agreeing, the one of least effort."""
    explainer = Explainer(demo / "adult-0.75.veil", demo / "model.pt2")
    result = explainer.explain(demo / "queries.csv", ">50K", progress=False)
    answers = result.summary()
    stable = answers[(answers.changed_features == 2) & (answers.stability == 1)]
    query = stable.sort_values("effort")["query"].iloc[0] - 1
    drawn = io.BytesIO()
    result.plot(int(query)).savefig(drawn, dpi=110)
    save(drawn.getvalue(), "tutorial-answer")


def explained(demo: Path, page: Path) -> None:
    """The page that `counterveil explain --report` writes."""
    files = {"--veil": "adult-0.75.veil", "--model": "model.pt2", "--queries": "queries.csv"}
    words = [word for name, file in files.items() for word in (name, str(demo / file))]
    line = ["explain", *words, "--target", ">50K", "--report", str(page), "--show", "0"]
    subprocess.run([sys.executable, "-m", "counterveil.cli", *line], check=True)


def groups(demo: Path, page: Path) -> None:
    """The page of `counterveil fairness`, of a veil of embedded rows with groups of sex."""
    rows = adult_split().train
    veil = Curator(adult_schema()).release(rows, 1.0, groups=["sex"], progress=False)
    compared = Explainer(veil, demo / "model.pt2").fairness(["sex"], ">50K", progress=False)
    compared.save(page)


def pictures(demo: Path) -> None:
    answer(demo)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        explained(demo, Path(folder) / "explained.html")
        write(ROOT / "results", Path(folder) / "report.html", None)
        shoot(page, Path(folder) / "explained.html", "explain-report", 900)
        shoot(page, Path(folder) / "report.html", "lab-report", 900, "#glance")
        groups(demo, Path(folder) / "groups.html")
        shoot(page, Path(folder) / "groups.html", "groups", 560)
        browser.close()


if __name__ == "__main__":
    pictures(Path(sys.argv[1]))
