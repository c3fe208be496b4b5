"""Datasets: what is loaded fits its public schema, in two parts that share nobody."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from asking import ask_points

from counterveil.demo.adult import adult_split
from counterveil.demo.adult import train_target as demo_target
from counterveil.encoding import Encoding
from counterveil.errors import InputError, RequestError
from counterveil.models import adapt
from counterveil.schema import Numeric, Schema
from counterveil_lab import schemas
from counterveil_lab.datasets import (
    CHECKSUMS,
    VARIABLE,
    Dataset,
    DatasetMissing,
    load,
    patients_held_out,
)
from counterveil_lab.targets import RECIPES, Recipe, accuracy, encoded, new_target, train_target

EMBEDDED = {"adult", "digits", "months"}
# rows, features, encoded width, classes
SHAPES = {
    "adult": (48_842, 11, 46, 2), "hospital": (101_766, 31, 127, 2),
    "homecredit": (45_779, 39, 112, 2), "mnist": (70_000, 1, 784, 10),
    "purchase-substitute": (59_073, 600, 600, 100), "texas-substitute": (86_234, 1_091, 1_091, 100),
    "digits": (1_797, 1, 64, 10), "months": (30_000, 23, 53, 2),
}  # fmt: skip


def data_folder():
    """The folder of datasets; tests that need it skip where there is none."""
    place = os.environ.get(VARIABLE)
    if not place or not Path(place).is_dir():
        pytest.skip(f"needs the folder of datasets; set {VARIABLE} to it")
    return Path(place)


def loaded(name, seed=0):
    return load(name, seed, None if name in EMBEDDED else data_folder())


def check_fit(dataset):
    """The schema accepts every row; of the wide binary tables, some rows and all values."""
    encoding = Encoding(dataset.schema)
    for part in (dataset.train, dataset.test):
        binary = dataset.schema.family == "binary"
        points = encoding.encode(part.head(300) if binary else part)
        assert 0 <= points.min() <= points.max() <= 1
        if binary:
            assert set(np.unique(part[list(dataset.schema.columns)].to_numpy())) == {0, 1}
        classes = set(range(len(dataset.schema.label.classes)))
        assert set(encoding.labels(part).tolist()) == classes


@pytest.mark.parametrize("name", SHAPES)
def test_every_dataset_fits_its_schema(name):
    dataset = loaded(name)
    rows, features, width, classes = SHAPES[name]
    assert len(dataset.train) + len(dataset.test) == rows
    assert len(dataset.schema.features) == features
    assert dataset.schema.width == width
    assert len(dataset.schema.label.classes) == classes
    assert dataset.name == dataset.schema.name == name
    assert (dataset.paper_accuracy is None) == (
        "substitute" in name or name in ("digits", "months")
    )
    check_fit(dataset)
    assert dataset.schema.immutable_names == ()  # nothing limits an answer, as in the paper
    assert not any(getattr(feature, "allowed", None) for feature in dataset.schema.features)


@pytest.mark.parametrize(
    ("name", "held_out"),
    [("homecredit", 0.25), ("digits", 0.25), ("months", 0.25), ("purchase-substitute", 0.2)],
)
def test_the_seed_decides_the_split(name, held_out):
    first, again, other = loaded(name, 1), loaded(name, 1), loaded(name, 2)
    pd.testing.assert_frame_equal(first.test, again.test)
    assert not first.test.equals(other.test)
    assert len(first.test) == round(held_out * SHAPES[name][0])
    every, others = (
        pd.concat([dataset.train, dataset.test]).astype(str).to_numpy().tolist()
        for dataset in (first, other)
    )
    assert sorted(every) == sorted(others)  # all rows once


def test_no_patient_is_in_both_parts_of_hospital():
    patients = pd.read_parquet(
        data_folder() / "hospital.parquet", columns=["patient_nbr"]
    ).patient_nbr.to_numpy()
    held_out = patients_held_out(patients, 4)
    assert not set(patients[held_out]) & set(patients[~held_out])
    assert held_out.mean() == pytest.approx(0.25, abs=0.01)
    dataset = loaded("hospital", 4)
    assert len(dataset.test) == held_out.sum()
    assert "patient_nbr" not in dataset.train.columns


def test_hospital_values_follow_the_raw_file():
    raw = pd.read_parquet(data_folder() / "hospital.parquet")
    dataset = loaded("hospital")
    rows = pd.concat([dataset.train, dataset.test])
    assert (rows.readmitted_within_30_days == "yes").sum() == (raw.readmitted == "<30").sum()
    assert rows.num_medications.sum() == raw.num_medications.clip(upper=50).sum()
    assert (rows.discharge == "died").sum() == raw.discharge_disposition_id.isin([11, 19, 20]).sum()
    assert rows.diag_3.isna().sum() == raw.diag_3.isna().sum()
    assert (rows.diag_1 == "diabetes").sum() == raw.diag_1.str.startswith("250", na=False).sum()


def test_homecredit_without_a_job_is_missing_and_mnist_keeps_its_own_split():
    dataset = loaded("homecredit")
    rows = pd.concat([dataset.train, dataset.test])
    assert rows.YEARS_EMPLOYED.isna().sum() == 8184
    assert rows.YEARS_EMPLOYED.max() <= 50  # and not a thousand years
    assert rows.AMT_INCOME_TOTAL.max() == 1_000_000
    dataset = loaded("mnist")
    assert (len(dataset.train), len(dataset.test)) == (60_000, 10_000)
    assert dataset.train.pixel0.dtype == np.uint8


def test_diagnoses_and_employers_are_grouped_as_published():
    codes = {
        "428": "circulatory", "785": "circulatory", "486": "respiratory", "786": "respiratory",
        "530": "digestive", "250.13": "diabetes", "996": "injury", "715": "musculoskeletal",
        "788": "genitourinary", "174": "neoplasms", "38": "other", "251": "other", "V57": "other",
    }  # fmt: skip
    assert {code: schemas.diagnosis_group(code) for code in codes} == codes
    employers = {"Trade: type 3": "trade", "Security": "services", "Security Ministries": "state",
                 "Self-employed": "self-employed", "Other": "other", "XNA": None}  # fmt: skip
    assert {name: schemas.employer_group(name) for name in employers} == employers


@pytest.mark.parametrize("groups", [schemas.ADMISSION_TYPES, schemas.DISCHARGES,
                                    schemas.ADMISSION_SOURCES])  # fmt: skip
def test_an_id_is_in_one_group(groups):
    ids = [number for group in groups.values() for number in group]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ["hospital", "homecredit"])
def test_schemas_survive_json_and_say_where_bounds_come_from(name):
    schema = schemas.read_schema(name)
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.note
    assert all(f.upper == round(f.upper, 1) for f in schema.features if isinstance(f, Numeric))


def test_without_a_folder_or_a_known_name_the_error_says_what_is_wanted(monkeypatch):
    with pytest.raises(RequestError, match="texas-substitute"):
        load("texas-100")
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(DatasetMissing) as caught:
        load("mnist")
    words = str(caught.value)
    assert isinstance(caught.value, InputError)
    assert "\n" not in words
    assert all(part in words for part in (VARIABLE, "mnist.npz", CHECKSUMS["mnist.npz"]))


def test_an_absent_file_is_named_and_the_argument_comes_before_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "variable"))
    with pytest.raises(DatasetMissing, match=r"variable.*hospital\.parquet with SHA-256 3988ff9b"):
        load("hospital")
    with pytest.raises(DatasetMissing, match="argument"):
        load("hospital", folder=tmp_path / "argument")


def test_a_changed_file_is_refused(tmp_path):
    content = bytearray((data_folder() / "purchase_substitute_completejourney.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "purchase_substitute_completejourney.npz").write_bytes(content)
    with pytest.raises(DatasetMissing, match="was changed"):
        load("purchase-substitute", folder=tmp_path)


def test_a_convolutional_target_needs_no_option(monkeypatch):
    monkeypatch.setitem(RECIPES, "digits", Recipe(epochs=15, batch=64, settling=1))
    dataset = loaded("digits")
    model = train_target(dataset)
    assert accuracy(model, dataset) > 0.9
    assert not any(weight.requires_grad for weight in model.parameters())
    points, classes = encoded(dataset.test, dataset.schema)
    answer = ask_points(adapt(model, dataset.schema), points)
    assert float((answer.argmax(dim=1) == classes).float().mean()) == accuracy(model, dataset)


def test_adult_s_split_and_target_are_the_demo_s():
    pd.testing.assert_frame_equal(loaded("adult", 3).test, adult_split(3).test)
    whole = loaded("adult")
    dataset = Dataset("adult", whole.schema, whole.train.head(1000), whole.test, None, "")
    ours = train_target(dataset, seed=2).state_dict()
    theirs = demo_target(dataset.train, dataset.schema, seed=2).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("schema", [schemas.read_schema("hospital"),
                                    schemas.binary_schema("bits", ["a", "b"], 5),
                                    schemas.image_schema("odd", side=7, levels=3)])  # fmt: skip
def test_targets_take_flat_points(schema):
    answer = new_target(schema)(torch.rand(3, schema.width))
    assert answer.shape == (3, len(schema.label.classes))
