"""One browser for the tests of pages; they are skipped, and say so, where there is none."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")  # while it runs, nothing else can run an event loop
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
    if CHROMIUM is None:
        pytest.skip("needs a browser: install the Debian package chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
                *("--disable-component-update", "--disable-sync", "--no-first-run"),
            ],
        )
        yield browser
        browser.close()
