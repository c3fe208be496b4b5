"""The studio in a real browser, beside the walk of test_newcomer.py.

Some tests give pictures of docs/studio.md (see pages.py).
"""

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import (
    choose_language,
    confirm_all,
    draft,
    loans,
    looks_right,
    opened_studio,
    set_epsilon,
    studio,
    sync_api,
)
from rows import random_rows

from counterveil import Explainer
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger
from counterveil.schema import Schema
from counterveil.search import fairness


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "loan-desk"
    place.mkdir()
    loans().to_csv(place / "loans.csv", index=False)
    return place


@pytest.mark.long
def test_an_audit_and_its_report(browser, folder):
    with studio(folder) as address, opened_studio(browser, address) as page:
        page.get_by_role("button", name="Audit").click()
        page.get_by_role("button", name="Start a quick audit").click()
        page.locator("#audited table").wait_for()
        # Mechanism paper promises nothing, and asked about it the audit says that it is refuted.
        assert "need a look" in page.locator("#audited").inner_text()
        report = page.locator("#audited > p").last.inner_text().removeprefix("The report: ")
        assert (folder / report).is_file()
        looks_right(page, "studio-desktop-6-audit", folder)
        page.get_by_role("button", name=f"Read {report}").click()
        assert "paper" in page.locator("#reader table").inner_text()
        page.get_by_role("button", name="Close the report").click()
        sync_api.expect(page.locator("#reader table")).to_have_count(0)


@pytest.mark.slow
def test_an_attack_and_its_report(browser, folder, veil, schema, rows):
    (folder / "loans.csv").unlink()
    veil.save(folder / "loans.veil")
    rows.to_csv(folder / "members.csv", index=False)
    with studio(folder) as address, opened_studio(browser, address) as page:
        page.get_by_role("button", name="Attack").click()
        assert "needs a second table" in page.locator("#attack-work").inner_text()
        random_rows(schema, 400, seed=5).to_csv(folder / "others.csv", index=False)
        page.get_by_role("button", name="File").click()
        page.get_by_role("button", name="Look again").click()
        page.get_by_role("button", name="others.csv").wait_for()
        page.get_by_role("button", name="Attack").click()
        page.get_by_label("The table that it was released from").select_option("members.csv")
        page.get_by_label("A table of other people").select_option("others.csv")
        page.get_by_label("Column that the attacker tries to guess").select_option("housing")
        looks_right(page, "studio-desktop-7-attack", folder)
        page.get_by_role("button", name="Start a quick attack").click()
        page.locator("#attack-bar").wait_for()
        assert page.get_by_role("button", name="Stop it").is_visible()
        page.locator("#attacked li").first.wait_for()
        assert "Attribute housing" in page.locator("#attacked").inner_text()
        page.locator("#attacked").get_by_role("button", name="Read attack-").click()
        frame = page.frame_locator("#reader iframe")
        assert "Attacks on loans" in frame.locator("h1").inner_text()
        # It has its style, and neither scripts nor the origin of the studio.
        width = frame.locator("main").evaluate("each => getComputedStyle(each).maxWidth")
        assert width == "860px"
        assert page.locator("#reader iframe").get_attribute("sandbox") == ""
        looks_right(page, "studio-desktop-7-attacked", folder)
        with page.expect_download() as download:
            page.locator("#attacked").get_by_role("button", name="Download attack-").click()
        text = download.value.path().read_text()
        assert text == (folder / download.value.suggested_filename).read_text()


@pytest.mark.long
def test_a_veil_is_tried_and_its_groups_are_shown(browser, folder, veil, monkeypatch):
    for name, value in {"DRAWN": 2000, "DRAWS": 1, "AGAIN": 2, "ANSWERED": 40}.items():
        monkeypatch.setattr(fairness, name, value)
    Explainer(veil).fairness(["member"], "granted").save(folder / "fairness.html")
    veil.save(folder / "loans.veil")
    with studio(folder) as address, opened_studio(browser, address) as page:
        page.locator("#veil-form button").click()
        page.get_by_label("Decision to reach").select_option(label="granted")
        page.get_by_role("button", name="Ask for three invented people").click()
        page.get_by_text("A letter to person").click()
        assert "Decision (loan): refused" in page.locator("#answers pre").inner_text()
        assert page.get_by_role("button", name="Fairness by groups").is_disabled()
        page.locator("#fairness-groups").get_by_label("member").check()
        assert page.get_by_role("button", name="Fairness by groups").is_enabled()
        page.get_by_role("button", name="Read fairness.html").click()
        frame = page.frame_locator("#reader iframe")
        frame.locator(".bars .bar").first.wait_for()
        bar = frame.locator(".bars .bar").first  # the policy of the page forbids no part of it
        assert bar.evaluate("each => each.getBoundingClientRect().width") > 1
        assert bar.evaluate("each => getComputedStyle(each).fill") != "rgb(0, 0, 0)"
        looks_right(page, "studio-desktop-5-people", folder)


def test_faults_of_a_schema_are_named_where_they_are(browser, folder):
    with studio(folder) as address, opened_studio(browser, address) as page:
        draft(page)
        age = page.get_by_role("article", name="age")
        age.get_by_label("From").fill("130")
        assert age.get_by_label("These bounds are public knowledge").is_disabled()
        age.get_by_label("To").fill("120")
        age.get_by_label("These bounds are public knowledge").click()
        assert age.get_by_label("These bounds are public knowledge").is_checked()
        problem = age.locator(".problem")
        problem.wait_for()
        assert problem.inner_text() == "lower must be below upper"
        confirm_all(page)
        page.get_by_role("button", name="Save and go on").click()
        assert "age" in page.get_by_role("alert").inner_text()
        assert not (folder / "loans.schema.json").exists()
        age.get_by_label("From").fill("0")
        age.get_by_label("From").press("Tab")
        problem.wait_for(state="hidden")
        page.get_by_role("article", name="housing").get_by_label("Kind").select_option("binary")
        assert page.locator("#confirmed").inner_text() == "4 of 6 confirmed"


def test_a_damaged_table_is_said_and_another_one_can_be_chosen(browser, folder):
    (folder / "broken.csv").write_bytes(b"a,b\n1,2\n3,4,5,6\n")
    with studio(folder) as address, opened_studio(browser, address) as page:
        page.get_by_role("button", name="broken.csv").click()
        page.get_by_role("button", name="Draft a schema").click()
        page.get_by_role("alert").wait_for()
        assert "line 3" in page.get_by_role("alert").inner_text()
        draft(page)
        assert page.get_by_role("alert").count() == 0


@pytest.mark.long
def test_an_account_that_cannot_pay_stops_the_release(browser, folder):
    Ledger(folder / "ledger.db").open_account("loans", Budget(0.5))
    with (
        studio(folder) as address,
        opened_studio(browser, address, "phone", color_scheme="dark") as page,
    ):
        draft(page)
        looks_right(page, "studio-phone-2-schema", folder)
        confirm_all(page)
        page.get_by_role("button", name="Save and go on").click()
        set_epsilon(page, 2)
        assert "cannot pay" in page.locator("#account").inner_text()
        assert page.get_by_role("button", name="Go on to the release").is_disabled()
        page.locator(".deltas").wait_for()
        assert page.locator(".deltas tbody tr").count() == 3
        set_epsilon(page, 0.25)
        assert "ε 0.25" in page.locator("#account").inner_text()
        assert page.get_by_role("button", name="Go on to the release").is_enabled()
        page.locator("#delta").select_option(index=1)  # the account has no δ
        page.get_by_text("cannot pay").wait_for()


def test_german_and_the_keyboard(browser, folder):
    with studio(folder) as address, opened_studio(browser, address, "wide", locale="de-DE") as page:
        assert page.locator("h1").inner_text() == "Von der Tabelle zum Schleier"
        assert page.evaluate("document.documentElement.lang") == "de"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.get_by_role("button", name="loans.csv").focus()
        page.keyboard.press("Enter")
        page.locator("#draft-form").wait_for()
        assert page.evaluate("document.activeElement.id") == "label"
        page.locator("#draft").focus()
        page.keyboard.press("Enter")
        page.locator("#head-2").wait_for()
        assert page.evaluate("document.activeElement.id") == "head-2"
        choose_language(page, "en")
        assert page.locator("h1").inner_text() == "From a table to a veil"
        looks_right(page, "studio-wide-2-schema", folder)


def test_without_the_token_the_page_says_where_to_find_it(browser, folder):
    with studio(folder) as address:
        for query in ("", "?token=wrong"):
            page = browser.new_page(locale="en-GB")
            page.goto(address + query)
            alert = page.get_by_role("alert")
            alert.wait_for()
            assert "printed in the terminal" in alert.inner_text()
            assert page.locator("#tables button").count() == 0
            page.close()


def test_both_languages_have_the_same_words():
    page = Path(__file__).parents[2] / "src" / "counterveil" / "studio" / "page"
    words = tomllib.loads((page / "words.toml").read_text())
    assert words["en"].keys() == words["de"].keys()
    files = [*page.glob("*.html"), page.parent / "walk.py", page.parent / "cards.py"]
    text = "".join(path.read_text() for path in files)
    macros = (page.parents[1] / "service" / "page" / "fields.html").read_text()
    shared = macros.partition("{% endmacro")[0]
    assert {*re.findall(r"words\([\"'](\w+)[\"'](?! ~)", text + shared)} <= words["en"].keys()
    quoted = {*re.findall(r"[\"'](\w+)[\"']", text + macros)}
    built = re.compile("step_[1-7]|grade_(good|fair|poor)|[a-z]+_head|missing")
    assert [each for each in words["en"].keys() - quoted if not built.fullmatch(each)] == []


def test_hundreds_of_bits_are_confirmed_at_once(browser, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 2, (60, 30)), columns=[f"bit{n}" for n in range(30)])
    frame.assign(kind=rng.choice(["a", "b"], 60)).to_parquet(tmp_path / "sets.parquet")
    with studio(tmp_path) as address, opened_studio(browser, address) as page:
        page.get_by_role("button", name="sets.parquet").click()
        page.get_by_role("button", name="Draft a schema").click()
        page.get_by_role("heading", name="30 columns of 0 and 1").wait_for()
        assert page.locator(".column").count() == 2
        confirm_all(page)
        assert page.locator("#confirmed").inner_text() == "31 of 31 confirmed"
        page.get_by_role("button", name="Save and go on").click()
        page.locator("#plan").get_by_text("Why").wait_for()
    assert not Schema.load(tmp_path / "sets.schema.json").drafted
