"""The pages in a real browser: they render, nothing overflows, nothing is fetched."""

import pytest

from counterveil import Explainer
from counterveil.report import Curve, VeilScore, demo_page


@pytest.fixture(scope="module")
def pages(veil, model, rows, tmp_path_factory):
    explainer = Explainer(veil, model)
    result = explainer.explain(rows.head(12), progress=False)
    actions = explainer.summary_of_actions(draw=300, groups=["member"])
    fairness = explainer.fairness(["member"], "granted", progress=False)
    lines = [
        VeilScore(mechanism, f"ε = {e}", "proved", 0.01, 0.9, 1.5, 1.0, 0.001)
        for mechanism in ("paper", "functional")
        for e in (0.75, 0.025)
    ]
    curve = Curve((1.0, 0.1, 5e-4), (0.01, 0.02, 0.4), 0.009)
    content = {
        "explain": result.to_html(),
        "demo": demo_page(lines, curve, result.only([0, 1, 2]), {"rows": "1"}, actions, fairness),
        "fairness": fairness.to_html(),
        "actions": actions.to_html(),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, text in content.items():
        (folder / f"{name}.html").write_text(text)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", ["demo", "explain", "fairness", "actions"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page(browser, pages, name, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked, faults = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((pages / f"{name}.html").as_uri())
    assert page.locator("h1").is_visible()
    assert page.locator(".promise").is_visible() or name == "actions"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if name == "demo":
        assert page.locator("svg.chart circle").count() == 3
        assert page.locator("article.card").count() == 3 + 3  # answers, and groups with actions
        assert page.locator("pre.letter").is_visible()
        assert page.locator(".bars .reach").count() > 0
    assert faults == []
    assert len(asked) == 1
    page.close()
