"""The studio in a real browser: from a table to a veil to answers, by a person who writes no code.

With COUNTERVEIL_PICTURES=docs/img the walk on the desktop writes the pictures of docs/studio.md.
"""

import io
import os
import re
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rows import random_rows
from studio_attack import TINY_LAB

from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger
from counterveil.schema import Schema

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra serve")
PICTURES = os.environ.get("COUNTERVEIL_PICTURES")
TOKEN = "token-of-the-tests"
MINUTES = 3 * 60_000  # ms: how long a step may take on a busy machine


def loans(count=500):
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


@contextmanager
def studio(folder):
    """The address of a studio for this folder."""
    from counterveil.service.run import bound_socket
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
    listening = bound_socket("127.0.0.1", 0)
    config = uvicorn.Config(create_app(steps, TOKEN), log_config=None, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "loan-desk"
    place.mkdir()
    loans().to_csv(place / "loans.csv", index=False)
    return place


@contextmanager
def opened(browser, address, width=1280, height=900, **choices):
    """A page of the studio; whatever it logs as an error, or fetches elsewhere, is a failure."""
    context = browser.new_context(viewport={"width": width, "height": height}, **choices)
    page = context.new_page()
    page.set_default_timeout(MINUTES)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    own = (address, f"blob:{address}", "about:srcdoc")
    page.on("request", lambda request: request.url.startswith(own) or faults.append(request.url))
    page.goto(f"{address}?token={TOKEN}")
    page.locator("#tables button").first.wait_for()
    yield page
    assert faults == []
    context.close()


SHORTER = """(long) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) node.data = node.data.replaceAll(long, "/data");
}"""  # in pictures, the folder of the test has a short name


def looks_right(page, name, folder):
    """Nothing is wider than the page, axe finds nothing serious, and a picture if one is wanted."""
    before = page.locator("#language").input_value()
    for language in ("de", "en", before):
        page.locator("#language").select_option(language)
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide in {language}"
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not serious, [(each["id"], each["nodes"][0]["html"]) for each in serious]
    if PICTURES:
        place = Path(PICTURES)
        place.mkdir(parents=True, exist_ok=True)
        page.evaluate("window.scrollTo(0, 0)")
        page.evaluate(SHORTER, str(folder.parent))
        shot = Image.open(io.BytesIO(page.screenshot(full_page=True)))
        shot.convert("RGB").quantize(64).save(place / f"{name}.png", optimize=True)


def draft(page):
    page.get_by_role("button", name="loans.csv").click()
    page.get_by_role("button", name="Draft a schema").click()
    page.locator("#head-2").wait_for()


def confirm_all(page):
    for box in page.locator(".column .read input").all():
        box.check()


def set_epsilon(page, value):
    page.get_by_label("ε exactly").fill(str(value))
    page.get_by_label("ε exactly").press("Tab")
    sync_api.expect(page.locator("#epsilon-now")).to_have_text(str(value), timeout=MINUTES)


@pytest.mark.parametrize(
    ("size", "width", "height", "scheme"),
    [("desktop", 1280, 900, "light"), ("phone", 390, 844, "dark")],
)
def test_from_a_table_to_answers(browser, folder, size, width, height, scheme):
    with (
        studio(folder) as address,
        opened(browser, address, width, height, color_scheme=scheme, locale="en-GB") as page,
    ):
        assert "token" not in page.url
        assert page.get_by_role("button", name="Release").is_disabled()
        page.get_by_role("button", name="loans.csv").click()
        page.locator("#draft-form").wait_for()
        looks_right(page, f"studio-{size}-1-file", folder)

        draft(page)
        assert "case" in page.locator("#left-out").inner_text()
        assert page.locator("#confirmed").inner_text() == "0 of 6 confirmed"
        age = page.get_by_role("article", name="age")
        age.get_by_label("From").fill("18")
        age.get_by_label("To").fill("120")
        age.get_by_label("In an answer, this").select_option("increase")
        assert "You replaced" in age.inner_text()
        page.get_by_role("button", name="Save and go on").click()
        assert "Not confirmed yet" in page.get_by_role("alert").inner_text()
        looks_right(page, f"studio-{size}-2-schema", folder)
        confirm_all(page)
        page.get_by_role("button", name="Save and go on").click()

        page.get_by_label("ε in all").fill("3")
        page.get_by_role("button", name="Open the account").click()
        set_epsilon(page, 2)
        assert "ε 1" in page.locator("#account").inner_text()
        looks_right(page, f"studio-{size}-3-epsilon", folder)
        page.get_by_role("button", name="Go on to the release").click()

        page.locator("#release").dblclick()
        if size == "phone":  # a page that is closed and opened again finds its release
            page.locator("#release-bar").wait_for()
            page.reload()
        page.locator("#to-try").wait_for()
        assert page.locator("#release").is_hidden()
        assert "guarantee explainer" in page.locator("#veil").inner_text()
        looks_right(page, f"studio-{size}-4-release", folder)
        page.locator("#to-try").click()

        page.get_by_label("Decision to reach").select_option(label="granted")
        page.get_by_role("button", name="Ask for three invented people").click()
        page.locator("#answers .card").nth(2).wait_for()
        assert "instead of" in page.locator("#answers").inner_text()
        assert "counterveil serve --veil" in page.locator("#serve").inner_text()
        looks_right(page, f"studio-{size}-5-try", folder)

    schema = Schema.load(folder / "loans.schema.json")
    assert not schema.drafted
    assert (schema.feature("age").lower, schema.feature("age").upper) == (18, 120)
    assert schema.feature("age").direction == "increase"
    entries = Ledger(folder / "ledger.db").entries()
    assert [(entry.epsilon, entry.state) for entry in entries] == [(2.0, "released")]
    assert (folder / "loans.veil").is_file()


def test_an_audit_and_its_report(browser, folder):
    with studio(folder) as address, opened(browser, address) as page:
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
        assert page.locator("#reader table").count() == 0


def test_an_attack_and_its_report(browser, tmp_path, veil, schema, rows):
    veil.save(tmp_path / "loans.veil")
    rows.to_csv(tmp_path / "members.csv", index=False)
    with studio(tmp_path) as address, opened(browser, address, locale="en-GB") as page:
        page.get_by_role("button", name="Attack").click()
        assert "needs a second table" in page.locator("#attack-work").inner_text()
        random_rows(schema, 400, seed=5).to_csv(tmp_path / "others.csv", index=False)
        page.get_by_role("button", name="File").click()
        page.get_by_role("button", name="Look again").click()
        page.get_by_role("button", name="others.csv").wait_for()
        page.get_by_role("button", name="Attack").click()
        page.get_by_label("The table that it was released from").select_option("members.csv")
        page.get_by_label("A table of other people").select_option("others.csv")
        page.get_by_label("Column that the attacker tries to guess").select_option("housing")
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
        looks_right(page, "studio-desktop-7-attack", tmp_path)
        with page.expect_download() as download:
            page.locator("#attacked").get_by_role("button", name="Download attack-").click()
        text = download.value.path().read_text()
        assert text == (tmp_path / download.value.suggested_filename).read_text()


def test_faults_of_a_schema_are_named_where_they_are(browser, folder):
    with studio(folder) as address, opened(browser, address) as page:
        draft(page)
        age = page.get_by_role("article", name="age")
        age.get_by_label("From").fill("130")
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
    with studio(folder) as address, opened(browser, address) as page:
        page.get_by_role("button", name="broken.csv").click()
        page.get_by_role("button", name="Draft a schema").click()
        page.get_by_role("alert").wait_for()
        assert "line 3" in page.get_by_role("alert").inner_text()
        draft(page)
        assert page.get_by_role("alert").count() == 0


def test_an_account_that_cannot_pay_stops_the_release(browser, folder):
    Ledger(folder / "ledger.db").open_account("loans", Budget(0.5))
    with studio(folder) as address, opened(browser, address) as page:
        draft(page)
        confirm_all(page)
        page.get_by_role("button", name="Save and go on").click()
        set_epsilon(page, 2)
        assert "cannot pay" in page.locator("#account").inner_text()
        assert page.get_by_role("button", name="Go on to the release").is_disabled()
        set_epsilon(page, 0.25)
        assert "ε 0.25" in page.locator("#account").inner_text()
        assert page.get_by_role("button", name="Go on to the release").is_enabled()
        page.locator("#delta").select_option(index=1)  # the account has no δ
        page.get_by_text("cannot pay").wait_for()


def test_german_and_the_keyboard(browser, folder):
    with studio(folder) as address, opened(browser, address, 1920, 1080, locale="de-DE") as page:
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
        page.get_by_label("Sprache").select_option("en")
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
    text = (page / "words.js").read_text()
    english, german = text.split("\n  de: {")
    names = [set(re.findall(r"(?:^ {4}|, )(\w+): \"", part, re.M)) for part in (english, german)]
    assert names[0] == names[1]
    files = ("index.html", "studio.js", "schema.js", "release.js", "checks.js", "steps.js")
    text = "".join((page / file).read_text() for file in files)
    used = set(re.findall(r'(?:data-words=|words\()"(\w+)"', text))
    assert used <= names[0]
    assert {
        n for n in names[0] if f'"{n}"' not in text and n[:5] not in ("step_", "grade")
    } == set()


def test_hundreds_of_bits_are_confirmed_at_once(browser, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 2, (60, 30)), columns=[f"bit{n}" for n in range(30)])
    frame.assign(kind=rng.choice(["a", "b"], 60)).to_parquet(tmp_path / "sets.parquet")
    with studio(tmp_path) as address, opened(browser, address, locale="en-GB") as page:
        page.get_by_role("button", name="sets.parquet").click()
        page.get_by_role("button", name="Draft a schema").click()
        page.get_by_role("heading", name="30 columns of 0 and 1").wait_for()
        assert page.locator(".column").count() == 2
        confirm_all(page)
        assert page.locator("#confirmed").inner_text() == "31 of 31 confirmed"
        page.get_by_role("button", name="Save and go on").click()
        page.locator("#plan").get_by_text("Why").wait_for()
    assert not Schema.load(tmp_path / "sets.schema.json").drafted
