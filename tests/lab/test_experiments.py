"""Experiments: every one at toy size, what is resumed, what is missing, what fails."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from asking import ask_frame
from torch import nn
from typer.testing import CliRunner

from counterveil import build
from counterveil.encoding import Encoding
from counterveil.models import adapt
from counterveil.schema import Pixels
from counterveil_lab import figures_experiments, fingerprints, product, targets
from counterveil_lab.experiments import answers, images, peers, releases, table
from counterveil_lab.experiments.images import gradcam, noisy_pixels, shares_of
from counterveil_lab.experiments.peers import CompleteDice, complete
from counterveil_lab.experiments.runner import Options
from counterveil_lab.results import pictures_of, stored_rows

OWN = ("targets", "fig-mse", "fig-reconstructions", "table-fr", "table-ad", "fig-time", "fig-case",
       "paper-readings")  # fmt: skip
COMMON = {"dataset", "method", "seed"}
cli = CliRunner()


@pytest.fixture(scope="module")
def toy():
    """Hundreds of rows, a handful of steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "QUICK_ROWS", 400)
        patch.setattr(fingerprints, "behaviours", lambda names: {name: name for name in names})
        patch.setattr(answers, "QUICK_QUERIES", 6)
        patch.setattr(product, "ITERATIONS", 5)
        patch.setattr(answers, "TIMED_QUERIES", 2)
        patch.setattr("counterveil.search.paper.algorithm2.ITERATIONS", 5)
        patch.setattr(peers, "QUICK", peers.Asked(cadex=2, cchvae=1, revise=1, dice=1))
        patch.setattr(peers, "PARTS", ("cadex", "vae"))  # dice-ml takes seconds a query
        patch.setattr(releases, "why_not", lambda name, _: "slow" if name == "dpsgd" else None)
        for family, training in build.TRAININGS.items():
            short = replace(training, samples=500, surrogate_epochs=1)
            patch.setitem(build.TRAININGS, family, short)
        for name in ("adult", "digits"):
            patch.setitem(targets.RECIPES, name, targets.Recipe(epochs=2, batch=64))
        yield


def options(folder, *datasets, **more):
    return Options(folder, seeds=1, quick=True, workers=1, datasets=datasets, **more)


@pytest.fixture(scope="module")
def measured(toy, tmp_path_factory):
    """Everything run once on digits, and some of it on adult."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTERVEIL_COMMIT", "test")
        patch.setattr(table, "EXPERIMENTS", {name: table.EXPERIMENTS[name] for name in OWN})
        assert table.run_named("all", options(folder, "digits")) == {}
        table.run_named("table-fr", options(folder, "adult"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_every_experiment_leaves_rows_and_its_figure_can_be_redrawn(measured, name, tmp_path):
    rows, drawn = stored_rows(measured, name), measured / f"{name}.svg"
    assert rows
    assert all(row.keys() >= COMMON for row in rows)
    ratios = [row[key] for row in rows for key in ("flip_ratio", "flip_ratio_specified", "legal")
              if row.get(key) is not None]  # fmt: skip
    assert all(0 <= ratio <= 1 for ratio in ratios)
    paint = table.EXPERIMENTS[name].paint
    if name.startswith("fig"):
        assert paint is not None
        paint(rows, tmp_path)
        assert (tmp_path / drawn.name).read_bytes() == drawn.read_bytes()


def test_times_of_several_seeds_are_one_bar():
    rows = [
        {"dataset": "adult", "seed": seed, "method": "cadex-0", "mechanism": None,
         "seconds_for_ten": 1.0 + seed, "least_seconds_for_ten": 0.5, "most_seconds_for_ten": 4.0}
        for seed in (0, 1)
    ]  # fmt: skip
    (bars,) = figures_experiments.times(rows).axes[0].containers[1:]
    assert [bar.get_width() for bar in bars] == [1.5]


@pytest.mark.slow
def test_the_table_has_every_method(measured):
    rows = stored_rows(measured, "table-fr")
    methods = {(row["method"], row.get("mechanism"), row.get("guidance")) for row in rows}
    assert methods >= {
        ("counterveil", "paper", "model"), ("counterveil", "functional", "model"),
        ("counterveil", "functional", "surrogate"), ("cadex-0", None, None), ("cchvae", None, None),
        ("revise", None, None),
    }  # fmt: skip
    assert {
        (row["mechanism"], row["search"]) for row in rows if row.get("guidance") == "model"
    } == {(name, search) for name in ("paper", "functional") for search in ("published", "full")}
    assert all(row["flip_ratio_any"] >= row["flip_ratio"] for row in rows)
    assert all("flip_ratio_specified" in row for row in rows if row["dataset"] == "digits")
    assert not any(row.get("flip_ratio_specified") for row in rows if row["dataset"] == "adult")
    assert all(row["queries"] > 0 for row in rows)

    rows = stored_rows(measured, "table-ad")
    assert {row["k"] for row in rows} == {3}
    assert all(0 <= row["answers_per_query"] <= 3 for row in rows)
    rows = stored_rows(measured, "fig-mse")
    assert {row["mechanism"] for row in rows if row["epsilon"] == "none"} == {"paper"}
    assert all(row["mse"] > 0 and row["epochs"] == 2 for row in rows)
    pictures = pictures_of(stored_rows(measured, "fig-case"))
    assert all(picture.dtype == np.uint8 for picture in pictures.values())
    assert pictures["digits query"].shape == (1, 8, 8)


def test_a_veil_and_a_model_are_made_once(toy, tmp_path, monkeypatch):
    monkeypatch.setenv(releases.CACHE, str(tmp_path))
    data = releases.data_for("digits", 0, quick=True)
    first, again = (releases.release(data, "paper", 0.75, 0, quick=True) for _ in range(2))
    assert torch.equal(first.veil.prototypes, again.veil.prototypes)
    assert first.seconds == again.seconds
    one, other = (releases.target_for(data, 0).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    other_noise = releases.release(data, "paper", 0.5, 0, quick=True)
    assert not torch.equal(first.veil.prototypes, other_noise.veil.prototypes)


class Bright(nn.Module):
    """Class 1 is the sum of a convolution that copies the picture; class 0 is its opposite."""

    def __init__(self, image):
        super().__init__()
        self._side = image.height
        self.copy = nn.Conv2d(1, 1, kernel_size=1, bias=False)
        nn.init.ones_(self.copy.weight)
        self.requires_grad_(False)

    def forward(self, points):
        score = self.copy(points.reshape(-1, 1, self._side, self._side)).sum(dim=(1, 2, 3))
        return torch.stack([-score, score], dim=1)


def test_gradcam_shows_what_speaks_for_a_class():
    image = Pixels(name="pixel", height=4, breadth=4, levels=255)
    points = torch.zeros(2, 16)
    points[:, 5], points[:, 10] = 0.5, 0.25
    maps = gradcam(Bright(image), points, torch.tensor([1, 0]), image)
    assert torch.allclose(maps[0].flatten(), points[0] * 2)
    assert not maps[1].any()


def test_the_case_study_looks_at_the_class_that_f_gives(toy, monkeypatch):
    data = releases.data_for("digits", 0, quick=True)
    towards = []

    def spy(model, points, classes, image):
        towards.append((model(points).argmax(dim=1), classes))
        maps = gradcam(model, points, classes, image)
        assert maps.shape == (len(points), 8, 8)
        assert 0 <= float(maps.min()) <= float(maps.max()) <= 1
        return maps

    monkeypatch.setattr(images, "gradcam", spy)
    (row,) = images.measure_case_study("digits", "paper", 0.5, 0, quick=True)
    ((given, classes),) = towards
    assert torch.equal(given, classes)
    assert row["queries"] == len(given) <= (data.test[data.schema.label.name] == 9).sum()
    assert row["f_says"] == given[0]
    assert row["valid"] == (given[0] == 5)
    assert row["mean_valid"] == pytest.approx(float((given == 5).float().mean()))
    assert row["mean_distance"] > 0
    assert 0 <= row["mean_noise_area"] <= 1
    assert set(row["pictures"]) == {"digits query", "digits paper published 0.5"}
    assert row["pictures"]["digits paper published 0.5"].shape == (2, 8, 8)


def test_a_single_bright_pixel_is_noise_and_a_stroke_is_not():
    image = Pixels(name="pixel", height=8, breadth=8, levels=255)
    pictures = torch.zeros(2, 8, 8)
    pictures[0, 2:4, 1:7] = 1.0  # a stroke, two pixels wide
    pictures[0, 4, 3] = 0.2  # its blurred edge
    pictures[0, 5, 3] = 0.2
    pictures[1, 5, 5], pictures[1, 0, 0] = 0.3, 0.04
    found = noisy_pixels(pictures.flatten(1), image)
    assert found.shape == (2, 8, 8)
    assert found.nonzero().tolist() == [[0, 5, 3], [1, 5, 5]]

    # Shares of maps stand beside shares of the picture.
    seen = torch.zeros(2, 2, 2)
    seen[0, 0, 0], seen[0, 1, 1] = 3.0, 1.0
    pixels = torch.zeros(2, 2, 2, dtype=torch.bool)
    pixels[:, 0, 0] = True
    shares = shares_of(seen, "noise", pixels)
    assert shares["gradcam_on_noise"][0] == 0.75
    assert shares["gradcam_on_noise"][1].isnan()  # a map that is 0 everywhere has no shares
    assert shares["noise_area"].tolist() == [0.25, 0.25]


def test_the_complete_schema_encodes_to_the_same_places_and_serves_dice(schema, rows, model):
    real, other = Encoding(schema), Encoding(complete(schema))
    assert real.width == other.width
    points = real.encode(rows)
    again = other.encode(other.decode(points))
    missing = np.isclose(points, 0.5)  # a whole number in the place of 1/2
    assert np.allclose(points[~missing], again[~missing])
    assert not any(getattr(feature, "missing", False) for feature in other.schema.features)

    pytest.importorskip("dice_ml")  # which answers where values are missing
    judge = adapt(model, schema)
    refused = ask_frame(judge, judge.encoding.pick(rows)).argmax(dim=1) == 0
    asked = rows[refused.numpy()].head(4)
    dice = CompleteDice(schema, model, rows, method="random")
    answers = dice.explain(asked, torch.ones(4, dtype=torch.long))
    measured = answers.metrics()
    assert measured["flip_ratio"] > 0
    assert measured["legal"] == 1
