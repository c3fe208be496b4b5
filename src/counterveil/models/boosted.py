"""Boosted trees of XGBoost and LightGBM: their files, their boosters, and the rows they want.

Neither package is imported before a model of it comes. A booster knows its classes by number only,
and the trees know columns by place: both are settled by name here, or refused.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.models.base import column_called, optional, unknown_column
from counterveil.schema import Schema
from counterveil.schema.features import MAX_WIDTH

PROBABLE = frozenset({"binary", "multiclass", "multiclassova", "cross_entropy"})  # LightGBM
MARGINS = frozenset({"binary:logistic", "binary:logitraw", "multi:softprob", "multi:softmax"})
# What a file claims: in JSON "num_trees":"8", in UBJSON num_trees, S, the kind and bytes of a
# length, 8; in LightGBM's text a line num_leaves=8.
XGBOOST_COUNTS = re.compile(
    rb"(num_class|num_feature|num_nodes|num_target|num_trees|size_leaf_vector)"
    rb'(?:"\s*:\s*"|S[iU].|SI..|Sl.{4}|SL.{8})(\d+)',
    re.DOTALL,
)
LIGHTGBM_COUNTS = re.compile(
    rb"^(num_class|num_tree_per_iteration|max_feature_idx|num_leaves|num_cat)=(\d+)$", re.MULTILINE
)
# Opens a file and asks its model, in a process of its own: arguments are package, file, seconds.
REHEARSAL = """
import sys
package, file, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
import numpy
module = __import__(package)  # seconds where nothing is compiled yet: not part of the limit
try:
    import resource, time
    seconds += int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
except ImportError:
    pass
model = module.Booster(model_file=file)
features = model.num_features() if package == "xgboost" else model.num_feature()
dice = numpy.random.default_rng(0)
rows = numpy.concatenate([
    dice.normal(0, 100, (64, features)),
    dice.random((256, features)),
    dice.integers(0, 2, (256, features)),
    dice.integers(0, 100, (64, features)),
])
rows[0], rows[1], rows[2], rows[3] = 0, numpy.nan, 1e9, -1e9
rows[4:64][dice.random((60, features)) < 0.3] = numpy.nan
if package == "xgboost":
    model.set_param({"nthread": 1})
    model.predict(module.DMatrix(rows), output_margin=True, validate_features=False)
else:
    model.predict(rows, num_threads=1)
"""
LONGEST_REHEARSAL_S = 5  # seconds of processor time, and one more for each megabyte
WRAP = "wrap it in a function from rows to class probabilities"
MOST_DEPTH = 200  # of values within values: readers of XGBoost recurse, and end the process beyond
# Bytes of a value of UBJSON, by the letter of its kind.
SIZES = dict(zip("ZNTFiUCIldLD", (0, 0, 0, 0, 1, 1, 1, 2, 4, 4, 8, 8), strict=True))


def check_json(content: bytes) -> None:
    """A ValueError where JSON may nest too deep; brackets within texts count as well."""
    letters = np.frombuffer(content, dtype=np.uint8)
    opens, closes = ((letters == a) | (letters == b) for a, b in (b"{[", b"}]"))
    depth = np.cumsum(np.where(opens, 1, -1)[opens | closes])
    if (depth - np.minimum.accumulate(depth)).max(initial=0) > MOST_DEPTH:
        raise ValueError("nests too deep")


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.left = len(content)  # bytes that are not read yet

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise ValueError("it ends too early")
        start = len(self._content) - self.left
        self.left -= size
        return self._content[start : start + size]

    def letter(self) -> str:
        return chr(self.take(1)[0])

    def passes(self, letter: str) -> bool:
        """Whether `letter` comes next; then it is read."""
        found = self.left > 0 and chr(self._content[-self.left]) == letter
        self.left -= found
        return found

    def count(self) -> int:
        kind = self.letter()
        if kind not in "iUIlL":
            raise ValueError("no whole number")
        found = int.from_bytes(self.take(SIZES[kind]), "big", signed=kind != "U")
        if found < 0:
            raise ValueError("a length below 0")
        return found

    def pass_value(self, depth: int) -> None:
        """Read one value, with all that is in it."""
        kind = self.letter()
        if depth > MOST_DEPTH:
            raise ValueError("nests too deep")
        if kind == "{":
            while not self.passes("}"):
                self.take(self.count())  # the key
                self.pass_value(depth + 1)
        elif kind != "[":
            self.take(self.count() if kind == "S" else SIZES.get(kind, -1))
        elif self.passes("$"):
            size = SIZES.get(self.letter(), 0)
            self.passes("#")
            self.take(self.count() * size)
        elif self.passes("#"):
            for _ in range(self.count()):
                self.pass_value(depth + 1)
        else:
            while not self.passes("]"):
                self.pass_value(depth + 1)


def check_ubjson(content: bytes) -> None:
    """A ValueError where UBJSON nests too deep, is cut off, or is no UBJSON."""
    reader = _Reader(content)
    reader.pass_value(depth=1)
    if reader.left:
        raise ValueError("it goes on after its end")


def is_booster(model: Any) -> bool:
    """Whether `model` is a Booster of XGBoost or LightGBM; neither package is imported for it."""
    return any(
        kind.__name__ == "Booster" and kind.__module__.split(".")[0] in {"xgboost", "lightgbm"}
        for kind in type(model).__mro__
    )


def load_xgboost(source: Path) -> Any:
    """A classifier from XGBoost's own format, which holds trees and no code.

    A file that is cut off is refused here: XGBoost's reader may end the whole process over it.
    """
    xgboost = optional("xgboost", "xgboost", f"reading {source.suffix} of XGBoost")
    content = source.read_bytes().strip(b" \r\n")
    if not (content.startswith(b"{") and content.endswith(b"}")):
        raise _unreadable(source, "XGBoost")
    try:  # by the byte after the first bracket; XGBoost refuses a kind that is not of the name
        (check_json if content[1:2] in b'" \r\n\t}' else check_ubjson)(content)
    except ValueError:
        raise _unreadable(source, "XGBoost") from None
    _check_counts(source, XGBOOST_COUNTS.findall(content), len(content))
    _rehearse(source, "xgboost", "XGBoost")
    model = xgboost.XGBClassifier()
    try:
        model.load_model(source)
    except TypeError:
        raise ModelError(f"{source} is an XGBoost model, but not a classifier") from None
    except Exception:  # its text is a stack trace
        raise _unreadable(source, "XGBoost") from None
    _check_xgboost(model.get_booster())
    return model


def load_lightgbm(source: Path) -> Any:
    """A booster from the text that LightGBM's Python package writes; it holds trees, no code."""
    lightgbm = optional("lightgbm", "lightgbm", "reading .txt of LightGBM")
    content = source.read_bytes().replace(b"\r\n", b"\n")
    if not _is_whole(content):
        raise _unreadable(source, "LightGBM")
    _check_counts(source, LIGHTGBM_COUNTS.findall(content), len(content))
    _rehearse(source, "lightgbm", "LightGBM")
    try:
        content.decode()
        booster = lightgbm.Booster(model_file=source)
        BoosterClassifier(booster)  # reads its settings
    except ModelError:
        raise
    except Exception:
        raise _unreadable(source, "LightGBM") from None
    return booster


def _is_whole(text: bytes) -> bool:
    """Whether nothing of LightGBM's text is cut off: its reader would end the whole process."""
    sizes = re.search(rb"^tree_sizes=([\d ]+)$", text, re.MULTILINE)
    first, end = text.find(b"\nTree=0\n") + 1, text.find(b"\nend of trees\n") + 1
    return (
        text.startswith(b"tree\n")
        and sizes is not None
        and 0 < first < end
        and end - first == sum(int(size) for size in sizes[1].split())
        and re.search(rb"\npandas_categorical:.*\n\Z", text) is not None
    )


def _check_counts(source: Path, counts: Sequence[tuple[bytes, bytes]], size: int) -> None:
    """Refuse a file of `size` bytes that claims more of a thing than it can hold.

    `counts`: what is counted, and how many; a tree, node, leaf or class takes at least a byte.
    """
    for name in {name for name, _ in counts}:
        given = [int(count) for what, count in counts if what == name]
        if name in {b"num_feature", b"max_feature_idx"}:  # the same ones in every tree
            too_many = max(given) > MAX_WIDTH
        else:
            too_many = sum(given) > size
        if too_many:
            raise ModelError(
                f"{source} claims more than it can hold ({name.decode()}); save the model again"
            )


def _rehearse(source: Path, package: str, name: str) -> None:
    """Open the file and ask its model once in a process of its own.

    The readers of both packages trust what is inside the trees: a damaged file may end the process
    that reads it. Errors of other kinds come up again where they can be told.
    """
    seconds = LONGEST_REHEARSAL_S + source.stat().st_size // 2**20
    words = [sys.executable, "-c", REHEARSAL, package, str(source), str(seconds)]
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=60 + 10 * seconds)
    except subprocess.TimeoutExpired:
        raise _unreadable(source, name) from None
    if done.returncode < 0:  # a signal
        raise _unreadable(source, name)


def _unreadable(source: Path, package: str) -> ModelError:
    return ModelError(
        f"{source} cannot be read as a model of {package}: damaged, or something else; "
        "save the model again"
    )


class BoosterClassifier:
    """A Booster with the face of an estimator. Its classes are 0, 1, ...: it knows no names."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster
        self._xgboost = hasattr(booster, "save_config")
        if self._xgboost:
            learner = _check_xgboost(booster)
            names, self.n_features_in_ = booster.feature_names, booster.num_features()
            count = int(learner["learner_model_param"]["num_class"])
        else:
            head = booster.model_to_string(num_iteration=1).split("\nTree=")[0]
            lines = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
            _check_objective(lines.get("objective", "of its own").split(" ")[0], PROBABLE)
            names, self.n_features_in_ = booster.feature_name(), booster.num_feature()
            if names == [f"Column_{i}" for i in range(len(names))]:  # fitted on an array
                names = None
            count = int(lines["num_class"])
        self.feature_names_in_ = names
        self.classes_ = np.arange(max(count, 2))

    def get_booster(self) -> Any:
        """The booster itself, under the name that XGBoost's estimators use."""
        return self._booster

    def predict_proba(self, rows: Any) -> Array:
        if not self._xgboost:
            answer = np.asarray(self._booster.predict(rows))
            return answer if answer.ndim > 1 else np.stack([1 - answer, answer], axis=1)
        xgboost = optional("xgboost", "xgboost", "this model")
        matrix = xgboost.DMatrix(rows, enable_categorical=True)
        margins = np.asarray(self._booster.predict(matrix, output_margin=True), dtype=np.float64)
        if margins.ndim == 1:
            margins = np.stack([np.zeros_like(margins), margins], axis=1)
        powers = np.exp(margins - margins.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _check_xgboost(booster: Any) -> dict[str, Any]:
    """The settings of a booster of XGBoost that gives class probabilities."""
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    _check_objective(learner["objective"]["name"], MARGINS)
    return learner


def _check_objective(objective: str, known: frozenset[str]) -> None:
    if objective not in known:
        raise ModelError(
            f"the booster's objective {objective!r} does not give class probabilities; "
            f"use a classifier, or {WRAP}"
        )


def rows_as_fitted(estimator: Any, schema: Schema) -> Callable[[pd.DataFrame], Any]:
    """What turns rows of the schema into those that `estimator` was fitted on.

    Columns come in the order of its `feature_names_in_`; estimators of scikit-learn without them
    were fitted on an array, and get one. LightGBM goes by place and checks no
    names; boosted trees want text as pandas categories, and numbers if they know no names.
    """
    if type(estimator).__module__.split(".")[0] == "lightgbm":
        booster = estimator.booster_
    else:
        booster = estimator.get_booster() if hasattr(estimator, "get_booster") else None
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is None and booster is not None:
        return lambda rows: rows.to_numpy(np.float64, na_value=np.nan)
    if fitted is None:
        first = estimator.steps[0][1] if hasattr(estimator, "steps") else estimator
        of_sklearn = type(first).__module__.startswith("sklearn.")
        is_array = of_sklearn and hasattr(first, "n_features_in_")
        return lambda rows: rows.to_numpy() if is_array else rows
    names = [str(name) for name in fitted]
    found = [column_called(name, schema.columns) for name in names]
    columns = [column for column in found if column is not None]
    if len(columns) < len(names):
        if booster is None:  # a pipeline may well drop the columns that the schema has not
            return lambda rows: rows
        raise ModelError(
            unknown_column(names[found.index(None)], schema)
            + "; was it fitted on the encoding? then set inputs='encoding' (--model-input)"
        )
    if booster is None:
        return lambda rows: rows[columns]
    kinds = dict.fromkeys(_text_columns(booster, columns, schema), "category")
    return lambda rows: rows[columns].astype(kinds).set_axis(names, axis=1)


def _text_columns(booster: Any, columns: Sequence[str], schema: Schema) -> list[str]:
    """The columns of text, if the booster remembers which category is which."""
    texts = schema.text_columns
    text = [column for column in columns if column in texts]
    if hasattr(booster, "pandas_categorical"):
        remembered = len(booster.pandas_categorical or ()) == len(text)
    else:
        kinds = booster.feature_types or ["float"] * len(columns)
        coded = [column for column, kind in zip(columns, kinds, strict=True) if kind == "c"]
        ask = getattr(booster, "get_categories", None)  # XGBoost 3.1 and later
        remembered = coded == text and (not coded or (ask is not None and not ask().empty()))
    if not remembered:
        raise ModelError(
            "the model does not remember the categories of just the schema's columns of text; "
            f"{WRAP}, or put it in a scikit-learn pipeline that encodes them"
        )
    return text
