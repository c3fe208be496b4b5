"""A newcomer's walk: docs/walk.md step by step, with the commands and buttons that it names.

It gives the pictures of the walk and of docs/studio.md (see pages.py).
"""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pages import (
    MINUTES,
    ask_until_found,
    command,
    confirm_all,
    fits,
    looks_right,
    opened,
    picture,
    serious,
    set_epsilon,
    sync_api,
)

from counterveil.privacy.ledger import Ledger
from counterveil.schema import Schema

WALK = Path(__file__).parents[2] / "docs" / "walk.md"
TEN_MINUTES = 600  # seconds


class Step:
    """One section of the walk. What the test does must be named in it."""

    def __init__(self, number):
        self.text = re.split(r"^## ", WALK.read_text(), flags=re.M)[number]
        assert self.text.startswith(f"{number}. ")

    def named(self, words):
        """`words`, which are in bold or code in the text."""
        flat = " ".join(self.text.split())
        assert f"**{words}**" in flat or f"`{words}`" in flat, words
        return words

    def press(self, page, words):
        page.get_by_role("button", name=self.named(words), exact=True).click()

    def command(self):
        """The words of the command that is typed in this step."""
        (line,) = re.findall(r"^\$ counterveil (.*)$", self.text, re.M)
        return line.split()

    def program(self):
        """The Python code of this step."""
        (code,) = re.findall(r"```python\n(.*?)```", self.text, re.S)
        return code


def confirm_a_schema(page, step, folder):
    page.get_by_role("button", name=step.named("loans.csv")).click()
    page.locator("#draft-form").wait_for()
    looks_right(page, "studio-desktop-1-file", folder)
    step.press(page, "Draft a schema")
    page.locator("#head-2").wait_for()
    assert page.locator("#confirmed").inner_text() == "0 of 5 confirmed"
    step = Step(3)
    age = page.get_by_role("article", name=step.named("age"))
    age.get_by_label(step.named("From")).fill("18")
    age.get_by_label(step.named("To")).fill("120")
    income = page.get_by_role("article", name=step.named("income"))
    income.get_by_label("From").fill("0")
    income.get_by_label("To").fill("20000")
    may = age.get_by_label("In an answer, this")
    may.select_option(label=step.named("may only rise"))
    assert "You typed" in age.inner_text()
    step.press(page, "Save and go on")
    assert "Not confirmed yet" in page.get_by_role("alert").inner_text()
    looks_right(page, "studio-desktop-2-schema", folder)
    confirm_all(page)
    step.press(page, "Save and go on")


def release(page, folder):
    step = Step(4)
    page.get_by_label(step.named("ε in all")).fill("3")
    step.press(page, "Open the account")
    step.named("ε exactly")
    set_epsilon(page, 1)
    page.locator("#account", has_text="ε 2").wait_for()
    looks_right(page, "studio-desktop-3-epsilon", folder)
    step.press(page, "Go on to the release")
    pay = Step(5).named("Pay ε = 1 and release")
    page.get_by_role("button", name=pay, exact=True).dblclick()
    page.locator("#release-bar").wait_for()
    page.reload()  # a page that is closed and opened again finds its release
    page.locator("#to-try").wait_for()
    assert page.locator("#release").is_hidden()
    assert "guarantee explainer" in page.locator("#veil").inner_text()
    looks_right(page, "studio-desktop-4-release", folder)


def answers_in_the_studio(page, folder):
    page.locator("#to-try").click()
    page.get_by_label("Decision to reach").select_option(label="granted")
    page.get_by_role("button", name="Ask for three invented people").click()
    page.locator("#answers .card").nth(2).wait_for()
    assert "instead of" in page.locator("#answers").inner_text()
    assert "counterveil serve --veil" in page.locator("#serve").inner_text()
    looks_right(page, "studio-desktop-5-try", folder)


def answers_of_the_service(page, step):
    for words in ("Fill in an example", "What would have to be different?"):
        assert page.get_by_role("button", name=step.named(words), exact=True).is_visible()
    assert page.get_by_label(step.named("Decision to reach")).first.is_visible()
    ask_until_found(page, step.named("granted"))
    assert serious(page) == []
    assert fits(page)
    picture(page, "walk-answer")
    page.get_by_role("button", name=step.named("What if? Try it")).first.click()
    sync_api.expect(page.locator("#decision")).to_contain_text("granted", timeout=MINUTES)


@pytest.mark.timeout(TEN_MINUTES)
@pytest.mark.long
def test_the_walk(browser, tmp_path):
    begun, folder = time.monotonic(), tmp_path / "loan-desk"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", Step(1).program()], cwd=tmp_path, check=True)
    with command(Step(2).command(), tmp_path) as address:
        place, _, token = address.partition("?token=")
        choices = {"query": f"?token={token}", "ready": "#tables button"}
        with opened(browser, place, **choices) as page:
            assert "token" not in page.url
            assert page.get_by_role("button", name="Release").is_disabled()
            confirm_a_schema(page, Step(2), folder)
            release(page, folder)
            answers_in_the_studio(page, folder)
    schema = Schema.load(folder / "loans.schema.json")
    assert not schema.drafted
    age = schema.feature("age")
    assert (age.lower, age.upper, age.direction) == (18, 120, "increase")
    assert (folder / Step(5).named("loans.veil")).is_file()
    (entry,) = Ledger(folder / "ledger.db").entries()
    assert (entry.epsilon, entry.state) == (1.0, "released")
    with command(Step(6).command(), tmp_path) as address, opened(browser, address) as page:
        answers_of_the_service(page, Step(7))
    assert time.monotonic() - begun < TEN_MINUTES
