"""What the documentation names is there."""

import re
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
