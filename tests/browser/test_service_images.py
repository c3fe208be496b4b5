"""The page of the service with images: an example, an answer, and what differs between them."""

import pytest
from pages import ask_until_found, looks_right, opened, service

from counterveil import Explainer

pytest.importorskip("sklearn", reason="its digits are the images")


@pytest.fixture(scope="module")
def address(digits_veil):
    explainer = Explainer(digits_veil)
    explainer.warm_up(progress=False)
    with service(explainer) as place:
        yield place


PIXELS = """each => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [each.naturalWidth, each.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(each, 0, 0);
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const rgb = (at) => [data[4 * at], data[4 * at + 1], data[4 * at + 2]];
  return Array.from({ length: data.length / 4 }, (_, at) => rgb(at));
}"""


@pytest.mark.long
def test_an_image_and_its_answer(browser, address):
    with opened(browser, address) as page:
        ask_until_found(page, target="3")
        card = page.locator("article.card").first
        assert card.locator("figcaption").all_inner_texts()[:3] == ["Case", "Answer", "Difference"]
        query, answer, difference = (
            each.evaluate(PIXELS) for each in card.locator("figure img").all()[:3]
        )
        assert len(query) == 64
        assert query == page.locator("#fields img").evaluate(PIXELS)
        assert query != answer
        for (before, *_), (after, *_), (red, _, blue) in zip(
            query, answer, difference, strict=True
        ):
            assert (after > before) == (blue > red)
            assert (after < before) == (blue < red)
        assert page.get_by_label("Changes at most").is_hidden()
        looks_right(page, "service-desktop-images")
