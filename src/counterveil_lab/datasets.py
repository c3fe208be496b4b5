"""The lab's datasets: rows of real, public tables with the public schema of each.

`adult` and `digits` come with the packages, and `months` is generated. The others are files in a
folder that the argument or the environment variable COUNTERVEIL_DATA names; each is known by its
SHA-256, so that a result always means the same rows (except the archives of `purchase` and `texas`,
whose form is checked).
Loading applies public rules only: id columns are dropped, values above a cap of the schema are set
to the cap, codes are grouped by the code book. docs/datasets.md lists them.

>>> dataset = load("digits", seed=0)
>>> len(dataset.train), len(dataset.test), dataset.schema.width
(1348, 449, 64)
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from counterveil.demo.adult import TEST_SHARE, adult_schema, adult_split
from counterveil.encoding import Array
from counterveil.errors import InputError, RequestError
from counterveil.schema import Numeric, Schema
from counterveil_lab import months, schemas

VARIABLE = "COUNTERVEIL_DATA"
SUBSTITUTE_TEST_SHARE = 0.2
ARCHIVE_CLASSES = 100
ROWS_AT_A_TIME = 10_000
NOT_EMPLOYED = 365243  # what HomeCredit writes into DAYS_EMPLOYED of people without a job
DAYS_A_YEAR = 365.25
Folder = str | os.PathLike[str] | None

PURCHASE_FILE = "purchase_substitute_completejourney.npz"
TEXAS_FILE = "texas_substitute_diabetes130.npz"
CHECKSUMS: Mapping[str, str] = {
    "hospital.parquet": "3988ff9b1c32f96661f78064bcdfe483f70bd8d382cd587ac028b2d78ad26c43",
    "homecredit_sample.parquet": "4bc1c4ca4289804c69b8ec84962f9e89c7d55aea9f2f76df7edb00f8ab03423f",
    "mnist.npz": "01863b6226888f68e8bf2eccbdd42166454b0db5081d68d1d83c7d79c2ee3dc6",
    PURCHASE_FILE: "4d23e350cb3e2b647f12a7ba455a2d42917b97ede74982f8d5ae9400d6b6a8ae",
    TEXAS_FILE: "0bdd0bb05d7fd56b4791f535b46eb697f8a6e248389d4d0a2460758e3a465483",
}


class DatasetMissing(InputError):  # noqa: N818 - reads as what it says
    """A file of a dataset is not there, or is not the one that results were measured on."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows to train on and rows held out, both with the label.

    `paper_accuracy`: of f, as the paper prints it. `people`: whose each row is, rows to train on
    first; None where everybody has one row. `impossible`: where the process behind the rows is
    known, which features of rows take part in what it never makes, bool (rows, features).
    """

    name: str
    schema: Schema
    train: pd.DataFrame
    test: pd.DataFrame
    paper_accuracy: float | None
    note: str
    people: Array | None = None
    impossible: Callable[[pd.DataFrame], Array] | None = None

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self.train)} + {len(self.test)} rows)"


def load(name: str, seed: int = 0, folder: Folder = None) -> Dataset:
    """The dataset called `name`, split by `seed`; its file is looked for in `folder`."""
    if name not in LOADERS:
        raise RequestError(f"no dataset {name!r}; there are: {', '.join(LOADERS)}")
    return LOADERS[name](seed, folder)


def _adult(seed: int, folder: Folder) -> Dataset:
    split = adult_split(seed)
    note = "UCI Adult, complete; embedded in counterveil."
    return Dataset("adult", _free(adult_schema()), split.train, split.test, 0.856, note)


def _free(schema: Schema) -> Schema:
    """The schema without what limits an answer: the paper limits none."""
    features = []
    for feature in schema.features:
        range_free = {"allowed": None, "good": None} if isinstance(feature, Numeric) else {}
        features.append(feature.model_copy(update={"immutable": False, **range_free}))
    return schema.model_copy(update={"features": tuple(features)})


def _hospital(seed: int, folder: Folder) -> Dataset:
    raw = pd.read_parquet(_find("hospital.parquet", folder))
    schema = schemas.read_schema("hospital")
    diagnoses = {
        name: _renamed(raw[name], schemas.diagnosis_group)
        for name in ("diag_1", "diag_2", "diag_3")
    }
    frame = raw.assign(
        gender=raw["gender"].where(raw["gender"] != "Unknown/Invalid"),
        admission_type=_grouped(raw["admission_type_id"], schemas.ADMISSION_TYPES),
        discharge=_grouped(raw["discharge_disposition_id"], schemas.DISCHARGES),
        admission_source=_grouped(raw["admission_source_id"], schemas.ADMISSION_SOURCES),
        readmitted_within_30_days=np.where(raw["readmitted"] == "<30", "yes", "no"),
        **diagnoses,
    )
    held_out = patients_held_out(raw["patient_nbr"].to_numpy(), seed)
    kept = _capped(frame, schema).assign(patient=raw["patient_nbr"])
    note = "UCI Diabetes 130-US hospitals, complete; split by patient."
    data = _split(schema, kept, held_out, seed, 0.701, note)
    people = np.concatenate([data.train.pop("patient"), data.test.pop("patient")])
    return replace(data, people=people)


def _homecredit(seed: int, folder: Folder) -> Dataset:
    raw = pd.read_parquet(_find("homecredit_sample.parquet", folder))
    schema = schemas.read_schema("homecredit")
    employed = raw["DAYS_EMPLOYED"].where(raw["DAYS_EMPLOYED"] != NOT_EMPLOYED)
    frame = raw.assign(
        CODE_GENDER=raw["CODE_GENDER"].where(raw["CODE_GENDER"] != "XNA"),
        AGE_YEARS=(-raw["DAYS_BIRTH"] // DAYS_A_YEAR).astype(np.int64),
        YEARS_EMPLOYED=-employed / DAYS_A_YEAR,
        YEARS_REGISTRATION=-raw["DAYS_REGISTRATION"] / DAYS_A_YEAR,
        YEARS_ID_PUBLISH=-raw["DAYS_ID_PUBLISH"] / DAYS_A_YEAR,
        YEARS_LAST_PHONE_CHANGE=-raw["DAYS_LAST_PHONE_CHANGE"] / DAYS_A_YEAR,
        ORGANIZATION_TYPE=_renamed(raw["ORGANIZATION_TYPE"], schemas.employer_group),
    )
    held_out = _rows_held_out(len(raw), seed, TEST_SHARE)
    note = "Home Credit Default Risk, a sample of 14.9 % of the labelled rows."
    return _split(schema, _capped(frame, schema), held_out, seed, 0.779, note)


def _mnist(seed: int, folder: Folder) -> Dataset:
    with np.load(_find("mnist.npz", folder)) as file:
        images, digits, is_test = file["images"], file["labels"], file["is_test"]
    schema = schemas.image_schema("mnist", side=28, levels=255)
    frame = _matrix(images.reshape(len(images), -1), digits, schema)
    note = "MNIST, complete; its own split; the seed only orders the rows."
    return _split(schema, frame, is_test, seed, 0.908, note)


def _digits(seed: int, folder: Folder) -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DatasetMissing(
            "'digits' comes with scikit-learn; pip install 'counterveil[sklearn]'"
        ) from None
    pixels, digits = load_digits(return_X_y=True)
    schema = schemas.image_schema("digits", side=8, levels=16)
    frame = _matrix(pixels.astype(np.uint8), digits, schema)
    held_out = _rows_held_out(len(frame), seed, TEST_SHARE)
    note = "1,797 pictures of 8 x 8 pixels; comes with scikit-learn."
    return _split(schema, frame, held_out, seed, None, note)


def _months(seed: int, folder: Folder) -> Dataset:
    held_out = _rows_held_out(months.ROWS, seed, TEST_SHARE)
    note = "Six months of bills, generated; which rows cannot be is known."
    data = _split(months.SCHEMA, months.table(), held_out, seed, None, note)
    return replace(data, impossible=months.impossible_steps)


def _substitute(original: str, file_name: str, source: str, seed: int, folder: Folder) -> Dataset:
    name = original.removesuffix("-100").lower() + "-substitute"
    with np.load(_find(file_name, folder)) as file:
        names = [str(feature) for feature in file["feature_names"]]
        bits = np.unpackbits(file["features_packed"], axis=1, count=len(names))
        classes = file["labels"]
    schema = schemas.binary_schema(name, names, int(classes.max()) + 1)
    note = f"A SUBSTITUTE for {original} ({source}); never report it as {original}."
    held_out = _rows_held_out(len(bits), seed, SUBSTITUTE_TEST_SHARE)
    return _split(schema, _matrix(bits, classes, schema), held_out, seed, None, note)


def _published(name: str, accuracy: float, seed: int, folder: Folder) -> Dataset:
    """A published archive. Its SHA-256 is not known here, so the note gives the one found."""
    file = f"dataset_{name}.tgz"
    path = _inside(folder, f"{file} of privacytrustlab/datasets") / file
    try:
        digest = _digest(path)
        if name == "purchase":
            table = _table_in_archive(path, "dataset_purchase", columns=601)
            bits, classes = table[:, 1:], table[:, 0]
        else:
            classes = _table_in_archive(path, "texas/100/labels", columns=1)[:, 0]
            bits = _table_in_archive(path, "texas/100/feats")
        if len(bits) != len(classes):
            raise ValueError(f"{path}: {len(bits)} rows and {len(classes)} classes")
        if bits.max() > 1:
            raise ValueError(f"{path}: expected rows of 0 and 1")
        if not 1 <= classes.min() <= classes.max() <= ARCHIVE_CLASSES:
            raise ValueError(f"{path}: expected classes from 1 to {ARCHIVE_CLASSES}")
    except OSError:
        words = f"cannot read {path}; docs/datasets.md says where {file} comes from"
        raise DatasetMissing(words) from None
    except ValueError as error:
        raise DatasetMissing(f"{error}; see docs/datasets.md") from None
    names = [f"bit{place}" for place in range(bits.shape[1])]
    schema = schemas.binary_schema(name, names, ARCHIVE_CLASSES)
    note = f"As published by Shokri et al. 2017; SHA-256 of {file}: {digest}."
    held_out = _rows_held_out(len(bits), seed, SUBSTITUTE_TEST_SHARE)
    return _split(schema, _matrix(bits, classes - 1, schema), held_out, seed, accuracy, note)


def _table_in_archive(path: Path, member: str, columns: int | None = None) -> Array:
    """A comma-separated file inside an archive as bytes; ValueError says what is wrong with it."""

    def as_bytes(numbers: Array) -> Array:
        whole = numbers.astype(np.uint8)
        if not np.array_equal(whole, numbers):
            raise ValueError(f"{path}: {member} has other values than whole numbers from 0 to 255")
        return whole

    try:
        with tarfile.open(path) as archive:
            names = [name for name in archive.getnames() if f"/{name}".endswith(f"/{member}")]
            content = archive.extractfile(names[0]) if names else None
            if content is None:
                raise ValueError(f"{path} has no file {member}; is it the published archive?")
            parts = pd.read_csv(content, header=None, dtype=np.float32, chunksize=ROWS_AT_A_TIME)
            table = np.concatenate([as_bytes(part.to_numpy()) for part in parts])
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path} is no archive that can be read ({error})") from None
    if columns is not None and table.shape[1] != columns:
        raise ValueError(f"{path}: {member} has {table.shape[1]} columns, not {columns}")
    return table


LOADERS: Mapping[str, Callable[[int, Folder], Dataset]] = {
    "adult": _adult,
    "hospital": _hospital,
    "homecredit": _homecredit,
    "mnist": _mnist,
    "purchase-substitute": partial(
        _substitute, "Purchase-100", PURCHASE_FILE, "The Complete Journey"
    ),
    "texas-substitute": partial(_substitute, "Texas-100", TEXAS_FILE, "Diabetes 130-US hospitals"),
    "digits": _digits,
    "months": _months,
    "purchase": partial(_published, "purchase", 0.713),
    "texas": partial(_published, "texas", 0.514),
}


def _find(name: str, folder: Folder) -> Path:
    """The path of a file whose content has been checked."""
    wanted = f"{name} with SHA-256 {CHECKSUMS[name]}"
    path = _inside(folder, wanted) / name
    try:
        found = _digest(path)
    except OSError:
        raise DatasetMissing(
            f"cannot read {path}; put {wanted} there, or set {VARIABLE} to its folder"
        ) from None
    if found != CHECKSUMS[name]:
        raise DatasetMissing(f"{path} was changed (SHA-256 {found}); replace it by {wanted}")
    return path


def _inside(folder: Folder, wanted: str) -> Path:
    """The folder of datasets."""
    place = folder or os.environ.get(VARIABLE)
    if not place:
        raise DatasetMissing(
            f"no folder of datasets given; put {wanted} into one and set {VARIABLE} to it"
        )
    return Path(place)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows_held_out(rows: int, seed: int, share: float) -> Array:
    """A mask of `share` of the rows, at random."""
    held_out = np.zeros(rows, dtype=bool)
    held_out[np.random.default_rng(seed).permutation(rows)[: round(share * rows)]] = True
    return held_out


def patients_held_out(patients: Array, seed: int) -> Array:
    """A mask of all rows of a quarter of the patients: nobody is in both parts."""
    people, number = np.unique(patients, return_inverse=True)
    return _rows_held_out(len(people), seed, TEST_SHARE)[number]


def _split(
    schema: Schema,
    frame: pd.DataFrame,
    held_out: Array,
    seed: int,
    accuracy: float | None,
    note: str,
) -> Dataset:
    """Both parts in an order that the seed gives, so that the first rows are a fair sample."""
    order = np.random.default_rng(seed).permutation(len(frame))
    places = order[~held_out[order]], order[held_out[order]]
    train, test = (frame.take(part).reset_index(drop=True) for part in places)
    return Dataset(schema.name, schema, train, test, accuracy, note)


def _capped(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The columns of the schema and the label; numbers beyond a bound are set to the bound."""
    kept = frame[[*schema.columns, schema.label.name]].copy()
    for feature in schema.features:
        if isinstance(feature, Numeric):
            kept[feature.name] = kept[feature.name].clip(feature.lower, feature.upper)
    return kept


def _matrix(values: Array, classes: Array, schema: Schema) -> pd.DataFrame:
    frame = pd.DataFrame(values, columns=list(schema.columns), copy=False)
    frame[schema.label.name] = classes.astype(np.int64)
    return frame


def _grouped(ids: pd.Series[Any], groups: Mapping[str, tuple[int, ...]]) -> pd.Series[Any]:
    """The group of each id; an id in no group is missing."""
    return ids.map({number: group for group, numbers in groups.items() for number in numbers})


def _renamed(column: pd.Series[Any], rule: Callable[[str], str | None]) -> pd.Series[Any]:
    """`rule` of every name; what is missing stays missing."""
    return column.map({name: rule(name) for name in column.dropna().unique()})
