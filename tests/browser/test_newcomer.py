"""A newcomer's walk: docs/walk.md step by step, with the commands and buttons that it names."""

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
    opened,
    picture,
    serious,
    set_epsilon,
    sync_api,
)

from counterveil.privacy.ledger import Ledger

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


@pytest.mark.timeout(TEN_MINUTES)
@pytest.mark.long
def test_the_walk(browser, tmp_path):
    begun = time.monotonic()
    (tmp_path / "loan-desk").mkdir()
    subprocess.run([sys.executable, "-c", Step(1).program()], cwd=tmp_path, check=True)
    step = Step(2)
    with command(step.command(), tmp_path) as address:
        place, _, token = address.partition("?token=")
        choices = {"query": f"?token={token}", "ready": "#tables button"}
        with opened(browser, place, **choices) as page:
            page.get_by_role("button", name=step.named("loans.csv")).click()
            step.press(page, "Draft a schema")
            page.locator("#head-2").wait_for()
            step = Step(3)
            age = page.get_by_role("article", name=step.named("age"))
            age.get_by_label(step.named("From")).fill("18")
            age.get_by_label(step.named("To")).fill("120")
            income = page.get_by_role("article", name=step.named("income"))
            income.get_by_label("From").fill("0")
            income.get_by_label("To").fill("20000")
            may = age.get_by_label("In an answer, this")
            may.select_option(label=step.named("may only rise"))
            confirm_all(page)
            step.press(page, "Save and go on")
            step = Step(4)
            page.get_by_label(step.named("ε in all")).fill("3")
            step.press(page, "Open the account")
            step.named("ε exactly")
            set_epsilon(page, 1)
            step.press(page, "Go on to the release")
            Step(5).press(page, "Pay ε = 1 and release")
            page.locator("#to-try").wait_for()
    assert (tmp_path / "loan-desk" / Step(5).named("loans.veil")).is_file()
    (entry,) = Ledger(tmp_path / "loan-desk" / "ledger.db").entries()
    assert (entry.epsilon, entry.state) == (1.0, "released")
    with (
        command(Step(6).command(), tmp_path) as address,
        opened(browser, address) as page,
    ):
        step = Step(7)
        for words in ("Fill in an example", "What would have to be different?"):
            assert page.get_by_role("button", name=step.named(words), exact=True).is_visible()
        assert page.get_by_label(step.named("Decision to reach")).first.is_visible()
        ask_until_found(page, step.named("granted"))
        assert serious(page) == []
        assert fits(page)
        picture(page, "walk-answer")
        page.get_by_role("button", name=step.named("What if? Try it")).first.click()
        decision = page.locator("#decision")
        sync_api.expect(decision).to_contain_text("granted", timeout=MINUTES)
    assert time.monotonic() - begun < TEN_MINUTES
