"""Believable answers about images in the lab: cases, judges, one small run, and the sheet."""

import numpy as np
import pytest
import torch

from counterveil_lab import figures, targets
from counterveil_lab.experiments import believable_images, images, releases, table
from counterveil_lab.experiments.runner import Options
from counterveil_lab.image_judges import ImageJudges, MaxPooled
from counterveil_lab.results import pictures_of, stored_rows


def options(folder, **more):
    return Options(folder, **{"seeds": 2, "quick": False, "workers": 1, **more})


def test_the_split_on_which_settings_were_chosen_is_not_measured(tmp_path):
    cases = list(believable_images.cases(options(tmp_path)))
    assert {case["seed"] for case in cases} == {1, 2}
    assert {case["dataset"] for case in cases} == {"mnist", "digits"}
    assert len(cases) == 2 * 2 * 4
    assert len(list(believable_images.cases(options(tmp_path, quick=True)))) == 1

    shown = [
        case.get("delta") for case in images.cases_of_case_study(options(tmp_path, quick=True))
    ]
    assert shown == [None, None, 1e-6]  # the case study: a believable answer with δ


def test_the_stranger_is_another_network_than_f():
    schema = releases.data_for("digits", 0, quick=True).schema
    stranger, f = MaxPooled(schema.images[0], 10), targets.new_target(schema)
    rows = torch.rand(3, 64)
    assert stranger(rows).shape == f(rows).shape == (3, 10)
    kinds = [{type(layer) for layer in network.modules()} for network in (stranger, f)]
    assert torch.nn.MaxPool2d in kinds[0] - kinds[1]


def test_a_sheet_has_a_line_for_every_way(tmp_path):
    pictures = np.zeros((3, 8, 8), dtype=np.uint8)
    stored = {
        "digits queries": pictures, "digits targets": np.array([1, 2, 3]),
        "digits 0.75 model nearest": pictures, "digits 3.0 model nearest": pictures,
        "digits 0.75 surrogate believable": pictures, "digits 0.75 model believable": pictures,
        "digits 3.0 model believable": pictures, "mnist 3.0 model believable": pictures,
    }  # fmt: skip
    sheet = figures.image_answers("digits", stored)
    assert [axes.get_ylabel() for axes in sheet.axes] == [
        "query", "believable, ε 3", "difference", "believable, ε 0.75", "difference", "nearest",
        "believable, ε 0.75\nthe veil alone",
    ]  # fmt: skip
    assert [tick.get_text() for tick in sheet.axes[0].get_xticklabels()] == ["→ 1", "→ 2", "→ 3"]


@pytest.mark.slow
def test_a_small_run_is_judged_stored_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setitem(targets.RECIPES, "digits", targets.Recipe(epochs=10, batch=64))
    monkeypatch.setenv("COUNTERVEIL_COMMIT", "test")
    asked = options(tmp_path, quick=True, datasets=("digits",))
    table.run_named("believable-images", asked)
    rows = stored_rows(tmp_path, "believable-images")
    assert [(row["guidance"], row["prefer"]) for row in rows] == list(believable_images.WAYS)
    believable, nearest, _ = rows
    assert believable["delta"] == 1e-6
    assert believable["flip_ratio"] == 1.0
    assert believable["twins"] > nearest["twins"]
    assert believable["stranger"] > nearest["stranger"]
    assert believable["effort"] > nearest["effort"] > 0
    assert believable["near_queries"] > believable["near_real"]
    assert (tmp_path / "believable-images-digits.svg").exists()
    assert "digits 3.0 model believable" in pictures_of(rows)
    judges = ImageJudges.of("digits", 1, quick=True)
    assert (judges.targets != targets.classes_of(judges.model, _points(judges))).all()


def _points(judges):
    return targets.encoded(judges.queries, judges.data.schema)[0]
