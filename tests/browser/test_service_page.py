"""The page of the service in a real browser: desktop and phone, both languages, wrong input."""

from __future__ import annotations

import threading
import time

import pytest

from counterveil import Explainer

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
uvicorn = pytest.importorskip("uvicorn", reason="counterveil[serve] is not installed")
run = pytest.importorskip("counterveil.service.run")
app = pytest.importorskip("counterveil.service.app")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")
SIZES = {"desktop": (1280, 900), "phone": (390, 844), "wide": (1920, 1080)}


def serving(explainer, settings):
    """A service in a thread of this process; ends with the block."""
    listening = run.bound_socket("127.0.0.1", 0)
    made = app.create_app(explainer, settings)
    server = uvicorn.Server(uvicorn.Config(made, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.02)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    yield address
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def explainer(veil):
    made = Explainer(veil, warm_steps=30)
    made.warm_up(progress=False)
    return made


@pytest.fixture(scope="module")
def address(explainer):
    yield from serving(explainer, app.Settings())


def opened(browser, address, size="desktop", **more):
    """A page, with what it asked for from elsewhere and what went wrong in it."""
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, locale="en-GB", **more)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))

    def look(request):
        if not request.url.startswith((address, "data:", "blob:")):
            page.faults.append(request.url)

    page.on("request", look)
    page.goto(address)
    page.wait_for_selector(".field")
    return page


def answered(page):
    page.click("#example")
    sync_api.expect(page.locator("#field-0")).not_to_have_value("")
    page.select_option("#target", index=2)
    page.click("#ask")
    page.wait_for_selector("#result h2")


def serious(page):
    found = axe.Axe().run(page).response["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_case(browser, address, size, scheme):
    page = opened(browser, address, size, color_scheme=scheme)
    assert serious(page) == []
    answered(page)
    assert serious(page) == []
    wide = page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert wide, "the page is wider than the screen"
    assert page.locator("#promise").is_visible()
    assert "end-to-end" in page.locator("#promise").inner_text()
    assert page.faults == []
    page.close()


def ask_until_found(page):
    for _ in range(20):
        answered(page)
        if page.locator("article.card").count():
            return
    raise AssertionError("no example had an answer")


def test_what_if_shows_the_decision_at_once(browser, address):
    page = opened(browser, address)
    ask_until_found(page)
    page.click("article.card button")
    sync_api.expect(page.locator("#decision")).not_to_have_text("")
    assert "granted" in page.locator("#decision").inner_text()
    assert page.locator(".field.moved").count() >= 1
    page.click("#trying button")
    assert page.locator("#trying").count() == 0
    assert page.faults == []
    page.close()


def test_what_must_stay_stays(browser, address):
    page = opened(browser, address)
    assert page.locator("input[role=switch]").nth(6).is_disabled()  # region, by the schema
    page.click("#example")
    sync_api.expect(page.locator("#field-0")).not_to_have_value("")
    for number in range(7):
        if page.locator("input[role=switch]").nth(number).is_enabled():
            page.locator("input[role=switch]").nth(number).uncheck()
    page.click("#ask")
    page.wait_for_selector("#result h2")
    for text in page.locator(".change").all_inner_texts():
        assert text.startswith("member")
    page.close()


def test_german(browser, address):
    page = opened(browser, address)
    page.select_option("#language", "de")
    assert page.locator("h1").inner_text() == "Was müsste anders sein?"
    assert page.locator("html").get_attribute("lang") == "de"
    answered(page)
    assert serious(page) == []
    assert "to be different" not in page.locator("main").inner_text()
    page.close()


def test_wrong_input_is_named(browser, address):
    page = opened(browser, address)
    page.click("#example")
    sync_api.expect(page.locator("#field-0")).not_to_have_value("")
    page.fill("#field-0", "500")
    page.evaluate("document.getElementById('person').noValidate = true")
    page.click("#ask")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "age" in page.locator("#trouble").inner_text()
    assert page.faults == []
    page.close()


def test_many_rows(browser, address, rows, schema, tmp_path):
    page = opened(browser, address)
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
    assert page.faults == []
    page.close()


def test_a_key_is_asked_for(browser, explainer, tmp_path):
    keys = app.AccessKeys(tmp_path / "keys.db", create=True)
    key = keys.new("branch")
    for address in serving(explainer, app.Settings(keys=keys)):
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("#key-form:not([hidden])")
        page.fill("#key", "cvk_wrong")
        page.click("#key-form button")
        sync_api.expect(page.locator("#trouble")).to_contain_text("valid")
        page.fill("#key", key)
        page.click("#key-form button")
        page.wait_for_selector(".field")
        assert page.locator("#key-form").is_hidden()
        page.close()


def test_by_keyboard_alone(browser, address):
    page = opened(browser, address)
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
    page.close()
