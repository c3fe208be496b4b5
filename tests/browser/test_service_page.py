"""The page of the service in a real browser: desktop and phone, both languages, wrong input."""

from __future__ import annotations

import pytest
from pages import (
    ask,
    ask_until_found,
    choose_language,
    fill_in_example,
    fits,
    opened,
    serious,
    service,
    sync_api,
)

from counterveil import Explainer

app = pytest.importorskip("counterveil.service.app")
fragments = pytest.importorskip("counterveil.service.page.fragments")


@pytest.fixture(scope="module")
def explainer(veil):
    made = Explainer(veil)
    made.warm_up(progress=False)
    return made


@pytest.fixture(scope="module")
def address(explainer):
    with service(explainer) as place:
        yield place


@pytest.mark.long
@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_one_case_and_what_if(browser, address, size, scheme):
    with opened(browser, address, size, color_scheme=scheme) as page:
        assert serious(page) == []
        fill_in_example(page)
        for number in (1, 2):  # income and debt are short
            assert len(page.locator(f"#field-{number}").input_value().strip("-")) <= 7
        ask_until_found(page)
        assert serious(page) == []
        assert fits(page), "the page is wider than the screen"
        assert page.locator("#promise").is_visible()
        assert "end-to-end" in page.locator("#promise").inner_text()
        page.click("article.card button")
        sync_api.expect(page.locator("#decision")).not_to_have_text("")
        sync_api.expect(page.locator("#decision")).to_contain_text("granted")
        assert page.locator(".field.moved").count() >= 1
        page.click("#trying button")
        sync_api.expect(page.locator("#trying")).to_have_count(0)


@pytest.mark.long
def test_a_letter_alone_is_printed(browser, address):
    with opened(browser, address, "phone", accept_downloads=True) as page:
        ask_until_found(page)
        assert "what works" in page.locator("#result .cards").inner_text()
        page.click("#letter summary")
        letter = page.locator("#letter pre").inner_text()
        assert letter.startswith("Decision (loan): refused")
        assert serious(page) == []
        assert fits(page)
        with page.expect_download() as download:
            page.get_by_role("link", name="Download as text").click()
        assert download.value.path().read_text().strip() == letter.strip()
        page.emulate_media(media="print")
        assert page.locator("body").inner_text().strip() == letter.strip()
        page.emulate_media(media="screen")
        choose_language(page, "de")
        page.locator("#result .cards th", has_text="was genügt").first.wait_for()
        page.get_by_text("Brief", exact=True).click()
        assert page.locator("#letter pre").inner_text().startswith("Entscheidung (loan)")


@pytest.mark.long
def test_what_must_stay_stays(browser, address):
    with opened(browser, address) as page:
        assert page.locator("input[role=switch]").nth(6).is_disabled()  # region, by the schema
        fill_in_example(page)
        for number in range(7):
            if page.locator("input[role=switch]").nth(number).is_enabled():
                page.locator("input[role=switch]").nth(number).uncheck()
        page.click("#ask")
        page.wait_for_selector("#result h2")
        # Beside the card is what would be possible if one of these might change after all.
        for text in page.locator("article.card tbody tr").all_inner_texts():
            assert text.startswith("member")


def test_german(browser, address):
    with opened(browser, address) as page:
        choose_language(page, "de")
        assert page.locator("h1").inner_text() == "Was müsste anders sein?"
        assert page.locator("html").get_attribute("lang") == "de"
        ask(page)
        assert serious(page) == []
        assert "to be different" not in page.locator("main").inner_text()

        fill_in_example(page)  # wrong input is named
        page.fill("#field-0", "500")
        page.evaluate("document.getElementById('person').noValidate = true")
        page.click("#ask")
        page.wait_for_selector("#trouble:not([hidden])")
        assert "age" in page.locator("#trouble").inner_text()


def test_many_rows(browser, address, rows, schema, tmp_path):
    with opened(browser, address) as page:
        page.click("#tab-many")
        good, short, other = (tmp_path / f"{name}.csv" for name in ("good", "short", "other"))
        rows[list(schema.columns)].head(130).to_csv(good, index=False)
        rows[["age"]].head(3).to_csv(short, index=False)
        other.write_text(",".join(schema.columns) + "\n")
        page.set_input_files("#file", short)
        page.wait_for_selector("#trouble:not([hidden])")
        assert "income" in page.locator("#trouble").inner_text()
        page.set_input_files("#file", other)
        sync_api.expect(page.locator("#trouble")).to_contain_text("no rows")
        page.set_input_files("#file", good)
        page.wait_for_selector("#go:not([disabled])")
        assert serious(page) == []
        page.click("#go")
        page.wait_for_selector("#download:not([hidden])", timeout=60_000)
        with page.expect_download() as download:
            page.click("#download")
        lines = download.value.path().read_text().splitlines()
        assert len(lines) == 131
        assert lines[0].startswith("row,way,status,decision,target,probability")
        assert serious(page) == []


def test_a_key_is_asked_for_and_why_answers_are_rationed(browser, veil, model, tmp_path):
    keys = app.AccessKeys(tmp_path / "keys.db", create=True)
    key = keys.new("branch", answers_a_day=70)
    explainer = Explainer(veil, model)
    settings = app.Settings(keys=keys)
    with (
        service(explainer, settings) as address,
        opened(browser, address, ready="#key-form") as page,
    ):
        page.fill("#key", "cvk_wrong")
        page.click("#key-form button")
        sync_api.expect(page.locator("#trouble")).to_contain_text("valid")
        page.fill("#key", key)
        page.click("#key-form button")
        page.wait_for_selector(".field")
        assert page.locator("#key-form").is_hidden()
        page.get_by_text("What that means").click()
        assert "70 answers a day" in page.locator("#ration").inner_text()
        assert "99.5 %" in page.locator("#ration").inner_text()
        assert serious(page) == []
        choose_language(page, "de")
        assert "99,5 %" in page.locator("#ration").inner_text()
        assert fits(page)


def test_by_keyboard_alone(browser, address):
    with opened(browser, address) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator("#tab-one").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#many").is_visible()
        page.keyboard.press("ArrowLeft")
        page.locator("#example").focus()
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#field-0")).not_to_have_value("")
        page.locator("#ask").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#result h2")
        assert page.evaluate("document.activeElement.id") == "result"
