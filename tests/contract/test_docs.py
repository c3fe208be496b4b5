"""What the documentation names is there."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_every_test_that_the_table_of_breaks_names_is_there():
    file = None
    named = 0
    for place, name in re.findall(
        r"`(tests/[\w/.]+)?::(\w+)`", (ROOT / "docs/breaks.md").read_text()
    ):
        file = ROOT / place if place else file
        assert file is not None
        if not re.search(rf"^def {name}\(", file.read_text(), re.MULTILINE):
            pytest.fail(f"docs/breaks.md names {file.name}::{name}, which is not there")
        named += 1
    assert named > 50


@pytest.mark.parametrize(
    "name",
    ["audit.checks", "audit.concentrated", "audit.game", "audit.joint", "privacy.book",
     "privacy.budget"],
)  # fmt: skip
def test_the_examples_in_docstrings_hold(name):
    assert doctest.testmod(import_module(f"counterveil.{name}"))[0] == 0


def test_the_reference_has_the_public_names():
    import counterveil
    from counterveil import curator, models, privacy, schema

    pages = "".join(path.read_text() for path in (ROOT / "docs/reference").glob("*.md"))
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)}
    packages = (counterveil, curator, models, privacy, schema)
    wanted = {name for package in packages for name in package.__all__}
    types = {"Category", "Direction", "Family", "Feature", "Good", "Rho", "Share"}
    assert wanted - shown == types | {"MECHANISMS"}


def test_pictures_of_the_tutorials_are_there_and_small():
    shown = set()
    for path in (ROOT / "docs/tutorials").glob("*.md"):
        shown |= {
            path.parent / name for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", path.read_text())
        }
    assert len(shown) >= 3
    assert all(picture.stat().st_size < 150_000 for picture in shown)
