"""Answers as pictures: everything is on the page, nothing lies on anything else."""

import itertools
import sys

import numpy as np
import pandas as pd
import pytest

import results
from counterveil.errors import RequestError
from counterveil.schema import Binary, Categorical, Label, Numeric, Pixels, Schema
from counterveil.search.results.refusals import NO_FURTHER

LABEL = Label(name="y", classes=("refused", "granted $x$"))


def explanations(features, query, row, status="found", **more):
    more |= {"status": np.array([status]), "probability": np.array([0.834])}
    return results.explanations(Schema(label=LABEL, features=features), [query], [row], **more)


def boxes(picture):
    """Every text with its box; checks that all of them lie on the page."""
    picture.canvas.draw()
    page = picture.bbox
    found = {}
    texts = [*picture.texts, *(text for axes in picture.axes for text in axes.texts)]
    for number, text in enumerate(texts):
        box = text.get_window_extent()
        assert page.x0 <= box.x0 < box.x1 <= page.x1, text
        assert page.y0 <= box.y0 < box.y1 <= page.y1, text
        found[number, text.get_text()] = box
    return found


def words_of(picture):
    """All that is written, where nothing lies on anything else."""
    found = boxes(picture)
    for (one, first), (other, second) in itertools.combinations(found.items(), 2):
        assert not first.padded(-1).overlaps(second.padded(-1)), (one, other)
    return [text for _, text in found]


FEATURES = (
    Numeric(name="age", lower=18, upper=100, integer=True),
    Numeric(name="income in $ a year before taxes and other deductions", lower=0, upper=250_000),
    Numeric(name="debt", lower=-5, upper=5, missing=True),
    Categorical(name="housing", categories=("rent", "own")),
    Categorical(name="degree", categories=("none " * 20, "long " * 30)),
    Categorical(name="region", categories=(1, 2), immutable=True),
    Binary(name="member", values=("no", "yes")),
    Categorical(name="sex", categories=("f", "m")),
)
QUERY = dict(
    zip(
        (feature.name for feature in FEATURES),
        (18, 4.5, None, "rent", "none " * 20, 2, "no", "f"),
        strict=True,
    )
)


def test_what_changed_in_a_table():
    row = QUERY | {"age": 19, "debt": 0.25, "housing": "own", FEATURES[1].name: 2.5e5}
    words = words_of(explanations(FEATURES, QUERY, row, fixed=("sex",)).plot())
    for text in (
        "refused",
        "granted $x$",
        "83% sure",
        "query 1 · changed: 4 of 8 features",
        "age",
        "18  →",
        "19",
        "100",
        "4.5  →",
        "250,000",
        "unknown  →",
        "0.25",
        "rent  →",
        "own",
        "income in $ a year before taxes",
        "cannot change: region 2 · sex f",
    ):
        assert text in words
    assert any(text.startswith("degree none none") for text in words)


@pytest.mark.parametrize("changed", [1, 2, 30, 60])
def test_any_number_of_changes(changed):
    kinds = [
        Numeric(name="n" * (3 * number + 1), lower=0, upper=10.0 ** (number % 9 + 1))
        if number % 3
        else Categorical(name=f"c {number} " * 9, categories=("a", "b" * number))
        for number in range(1, 91)
    ]
    random = np.random.default_rng(changed)
    query = {f.name: f.categories[0] if f.kind == "categorical" else f.upper / 2 for f in kinds}
    row = query | {
        f.name: f.categories[1] if f.kind == "categorical" else random.uniform(0, f.upper)
        for f in kinds[:changed]
    }
    words = words_of(explanations(tuple(kinds), query, row).plot())
    assert f"query 1 · changed: {changed} of 90 features" in words
    assert ("… and 20 more" in words) == (changed == 60)
    assert any(text.endswith("more") and "and" in text for text in words)


@pytest.mark.parametrize("after", [0.0, 1e-9, 0.5, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("before", [0.0, 0.01, 0.5, 1.0])
def test_values_never_lie_on_each_other(before, after):
    features = (Numeric(name="x", lower=0, upper=1),)
    words_of(explanations(features, {"x": before}, {"x": after}).plot())


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_images_side_by_side(channels):
    image = Pixels(name="p", height=5, breadth=4, channels=channels, levels=15)
    query = dict.fromkeys(image.columns, 0)
    row = query | {"p0": 15}
    picture = explanations((image,), query, row).plot()
    picture.canvas.draw()
    now, then, difference, bar = picture.axes
    titles = [axes.get_title() for axes in (now, then, difference)]
    assert titles == ["now: refused", "then: granted $x$ (83% sure)", "difference"]
    shown = difference.images[0]
    assert shown.get_clim() == (-15 / channels, 15 / channels)
    assert shown.get_array()[0, 0] == 15 / channels
    assert "brighter" in bar.get_ylabel()


def test_image_with_other_features_and_a_second_image():
    images = (Pixels(name="p", height=3, breadth=3), Pixels(name="q", height=2, breadth=8))
    pixels = {column: 7 for image in images for column in image.columns}
    query, row = pixels | QUERY, pixels | QUERY | {"age": 20}
    picture = explanations((*images, *FEATURES), query, row).plot()
    assert "if also age were 20 instead of 18" in picture.get_suptitle().replace("\n", " ")
    assert len(picture.axes) == 2 * 4
    boxes(picture)


def test_answers_that_were_not_found():
    reason = np.array(["no rule allows it"], dtype=object)
    words = words_of(explanations(FEATURES, QUERY, QUERY, "not_found", reason=reason).plot())
    assert "No way to granted $x$ was found: no rule allows it." in " ".join(words)
    already = words_of(explanations(FEATURES, QUERY, QUERY, "already").plot())
    assert any("already says" in text for text in already)
    image = Pixels(name="p", height=3, breadth=3)
    dark = dict.fromkeys(image.columns, 0)
    picture = explanations((image,), dark, dark, "not_found", reason=reason).plot()
    assert len(picture.axes) == 1
    assert "no rule allows it" in picture.get_suptitle().replace("\n", " ")


def test_answers_are_numbered():
    one = explanations(FEATURES, QUERY, QUERY | {"age": 20})
    two = results.explanations(
        one.schema, pd.concat([one.queries] * 2, ignore_index=True),
        pd.concat([one.rows, one.queries], ignore_index=True), k=2,
        status=np.array(["found", "not_found"]), reason=np.array(["", NO_FURTHER], dtype=object),
    )  # fmt: skip
    assert "query 1 · answer 1 · changed: 1 of 8 features" in words_of(two.plot())
    assert "query 1 · answer 2" in words_of(two.plot(0, 1))
    for place in ((1, 0), (0, 2), (-1, 0)):
        with pytest.raises(RequestError, match="positions are 0 to"):
            two.plot(*place)


def test_pictures_stand_alone(tmp_path):
    from matplotlib import _pylab_helpers

    picture = explanations(FEATURES, QUERY, QUERY | {"age": 20}).plot()
    assert picture._repr_png_().startswith(b"\x89PNG")
    for kind in ("png", "pdf", "svg"):
        picture.savefig(tmp_path / f"cf.{kind}")
        assert (tmp_path / f"cf.{kind}").stat().st_size > 1000
    assert _pylab_helpers.Gcf.get_all_fig_managers() == []
    features = (
        Binary(name=" "),
        Binary(name="$a_b$ [31m\n<b>"),
        Numeric(name="x\t", lower=0, upper=1),
    )
    query = {" ": 0, features[1].name: 0, "x\t": 0.0}
    row = {" ": 1, features[1].name: 1, "x\t": 0.5}
    words = [text.get_text() for text in explanations(features, query, row).plot().axes[0].texts]
    assert "$a_b$ [31m�<b>" in words


def test_without_matplotlib(monkeypatch):
    monkeypatch.delitem(sys.modules, "counterveil.search.results.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(RequestError, match="pip install matplotlib"):
        explanations(FEATURES, QUERY, QUERY).plot()
