"""The built documentation, opened from a folder: it fits the screen, and the search finds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import MINUTES, fits, opened, sync_api

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_pages_fit_and_the_search_finds_without_a_server(browser, tmp_path):
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(line, cwd=ROOT, env=quiet, check=True)
    site = f"{tmp_path.as_uri()}/"
    for size in ("desktop", "phone"):
        with opened(browser, site, size, query="index.html", ready="h1") as page:
            for name in ("tutorials/engineer", "reference/explainer", "examples/03-any-model"):
                page.goto(f"{site}{name}.html")
                assert fits(page), name
            if size == "phone":
                page.locator("label[for=__search]").first.click()
            page.locator("input[name=query]").click()
            page.locator("input[name=query]").press_sequentially("permute-and-flip")
            found = page.locator(".md-search-result__item")
            sync_api.expect(found.first).to_be_visible(timeout=MINUTES)
