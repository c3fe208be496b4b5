"""What tests of pages share: services in a thread, pages that report faults, and pictures.

With COUNTERVEIL_PICTURES=docs/img pictures are written that the documentation shows.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from studio_attack import TINY_LAB

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
uvicorn = pytest.importorskip("uvicorn", reason="counterveil[serve] is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")
PICTURES = os.environ.get("COUNTERVEIL_PICTURES")
SIZES = {"desktop": (1280, 900), "phone": (390, 844), "wide": (1920, 1080)}
TOKEN = "token-of-the-tests"
MINUTES = 3 * 60_000  # ms: how long a step may take on a busy machine
SHORTER = """(long) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) node.data = node.data.replaceAll(long, "/data");
}"""  # in pictures, the folder of the test has a short name


@contextmanager
def listening(app):
    """The address of an application that is served in a thread of this process."""
    from counterveil.service.run import bound_socket

    place = bound_socket("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{place.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def service(explainer, settings=None):
    """The address of a service."""
    from counterveil.service.app import create_app

    with listening(create_app(explainer, settings)) as address:
        yield address


@contextmanager
def studio(folder):
    """The address of a studio for this folder."""
    from counterveil.studio.app import create_app
    from counterveil.studio.folder import Folder
    from counterveil.studio.steps import Steps

    steps = Steps(
        Folder(folder),
        folder / "ledger.db",
        release_options=("--epochs", "2"),
        audit_options=("--mechanism", "paper", "--epsilon", "0.1", "--runs", "20"),
        lab=TINY_LAB,
    )
    with listening(create_app(steps, TOKEN)) as address:
        yield address


@contextmanager
def command(words, folder):
    """The address that a command of counterveil prints; it runs in this folder, on a free port."""
    line = [sys.executable, "-m", "counterveil.cli", *words, "--port", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    process = subprocess.Popen(line, cwd=folder, env=environment, stdout=PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextmanager
def opened(browser, address, size="desktop", *, query="", ready=".field", **choices):
    """A page; what it logs as an error, or fetches from elsewhere, is a failure.

    `query`: the end of the address. `ready`: what is there once the page can be used.
    """
    width, height = SIZES[size]
    choices = {"locale": "en-GB", **choices}
    context = browser.new_context(viewport={"width": width, "height": height}, **choices)
    page, faults = context.new_page(), []
    page.set_default_timeout(MINUTES)
    own = (address, f"blob:{address}", "data:", "about:srcdoc")
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith(own) or faults.append(asked.url))
    page.goto(address + query)
    page.locator(ready).first.wait_for()
    yield page
    assert faults == []
    context.close()


def opened_studio(browser, address, size="desktop", **choices):
    """The page of a studio with its tables, as `opened`."""
    return opened(
        browser, address, size, query=f"?token={TOKEN}", ready="#tables button", **choices
    )


def serious(page):
    """What axe finds that keeps people out: rule and element."""
    found = axe.Axe().run(page).response["violations"]
    wrong = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"]) for each in wrong]


def fits(page):
    """Whether nothing is wider than the screen."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def picture(page, name, folder=None):
    """Write a picture of the page if pictures are wanted; `folder` is shown with a short name."""
    if not PICTURES:
        return
    place = Path(PICTURES)
    place.mkdir(parents=True, exist_ok=True)
    page.evaluate("window.scrollTo(0, 0)")
    if folder:
        page.evaluate(SHORTER, str(folder.parent))
    shot = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    shot.convert("RGB").quantize(128).save(place / f"{name}.png", optimize=True)


def choose_language(page, language):
    """The page in this language, and the answer as well where there is one."""
    answered = page.locator("#result h2").count()
    page.locator("#language").select_option(language)
    page.wait_for_selector(f"html[lang={language}]")
    page.wait_for_selector(".htmx-request", state="detached")
    if answered:
        page.wait_for_selector("#result h2")


def looks_right(page, name, folder=None):
    """In both languages nothing is too wide; axe finds nothing serious; then a picture."""
    before = page.locator("#language").input_value()
    for language in ("de", "en", before):
        choose_language(page, language)
        assert fits(page), f"{name} is too wide in {language}"
    assert serious(page) == []
    picture(page, name, folder)


def loans(count=500):
    """A table of a loan desk, with a column that names the case."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "case": [f"K{number:05d}" for number in range(count)],
            "age": rng.integers(19, 78, count),
            "income": rng.gamma(3, 900, count).round().astype(int),
            "housing": rng.choice(["rent", "own", "free"], count),
            "degree": rng.choice(["none", "school", "college"], count),
            "member": rng.choice(["no", "yes"], count),
        }
    )
    score = frame.income / 900 + 1.2 * (frame.housing == "own") + (frame.degree == "college")
    frame["loan"] = np.where(score + rng.normal(0, 0.5, count) > 4, "granted", "refused")
    return frame


def draft(page):
    """In the studio: the draft of a schema for loans.csv."""
    page.get_by_role("button", name="loans.csv").click()
    page.get_by_role("button", name="Draft a schema").click()
    page.locator("#head-2").wait_for()


def confirm_all(page):
    """In the studio: type what stands there in grey, and say that it is public knowledge."""
    for field in page.locator(".column [placeholder]").all():
        if not field.input_value():
            field.fill(field.get_attribute("placeholder"))
            field.blur()
    for box in page.locator(".column .read input[type=checkbox]").all():
        box.check()


def set_epsilon(page, value):
    """In the studio: choose an ε."""
    page.get_by_label("ε exactly").fill(str(value))
    page.get_by_label("ε exactly").press("Tab")
    sync_api.expect(page.locator("#epsilon-now")).to_have_text(str(value), timeout=MINUTES)


def fill_in_example(page):
    """On the page of the service: an invented case."""
    entered = "new URLSearchParams(new FormData(document.getElementById('person'))).toString()"
    before = page.evaluate(entered)
    page.click("#example")
    while page.evaluate(entered) == before:
        page.wait_for_timeout(20)


def ask(page, target="granted"):
    """On the page of the service: what would have to be different for this decision?"""
    fill_in_example(page)
    page.select_option("#target", label=target)
    page.click("#ask")
    page.wait_for_selector("#result h2")


def ask_until_found(page, target="granted"):
    """As `ask`, until an example has an answer."""
    for _ in range(20):
        ask(page, target)
        if page.locator("article.card").count():
            return
    raise AssertionError("no example had an answer")
