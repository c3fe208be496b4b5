"""Files that are no model of the schema, as `counterveil explain --model` meets them: one line."""

import pickle

import boosters
import pytest
from commands import EXPLAIN, assert_refused
from sklearn.linear_model import LogisticRegression
from skops import io as skops_io
from torch import nn

from counterveil.encoding import Encoding
from counterveil.models import save_exported


def refused(run, name, words="", *options):
    assert_refused(run(*EXPLAIN, "--model", name, *options), words)


def pt2(folder, schema, points, loan):
    save_exported(nn.Linear(schema.width, 2), schema, folder / "good.pt2")


def skops(folder, schema, points, loan):
    skops_io.dump(LogisticRegression().fit(points, loan), folder / "good.skops")


def pkl(folder, schema, points, loan):
    (folder / "good.pkl").write_bytes(pickle.dumps(LogisticRegression().fit(points, loan)))


def boosted(package, kind):
    def save(folder, schema, points, loan):
        model = boosters.classifier(boosters.package_of(package)).fit(points, loan == "granted")
        boosters.booster_of(model).save_model(folder / f"good.{kind}")

    return save


def onnx(folder, schema, points, loan):
    convert = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed").to_onnx
    pytest.importorskip("onnxruntime", reason="counterveil[onnx] is not installed")
    fitted = LogisticRegression().fit(points.astype("float32"), loan)
    graph = convert(
        fitted, points[:1].astype("float32"), target_opset={"": 17, "ai.onnx.ml": 3},
        options={"zipmap": False},
    )  # fmt: skip
    (folder / "good.onnx").write_bytes(graph.SerializeToString())


KINDS = {
    "pt2": pt2, "skops": skops, "onnx": onnx, "ubj": boosted("xgboost", "ubj"),
    "json": boosted("xgboost", "json"), "txt": boosted("lightgbm", "txt"), "pkl": pkl,
}  # fmt: skip


@pytest.fixture
def good(world, schema, rows, request):
    """A good file of the kind, its bytes."""
    points = Encoding(schema).encode(rows)
    KINDS[request.param](world, schema, points, rows.loan)
    return request.param, (world / f"good.{request.param}").read_bytes()


def trust(kind):
    return ("--trust-pickle",) if kind == "pkl" else ()


@pytest.mark.long
@pytest.mark.parametrize("good", KINDS, indirect=True)
def test_files_that_are_empty_cut_off_or_of_another_kind(run, world, good):
    kind, content = good
    for part in (0, 1, 4, len(content) // 3, len(content) * 9 // 10, len(content) - 1):
        (world / f"part.{kind}").write_bytes(content[:part])
        refused(run, f"part.{kind}", "", *trust(kind))
    for other in KINDS:
        if {kind, other} in ({kind}, {"ubj", "json"}):  # XGBoost tells its two kinds by itself
            continue
        (world / f"other.{other}").write_bytes(content)
        refused(run, f"other.{other}", "", *trust(other))


def test_paths_that_are_no_file(run, world):
    (world / "folder.pt2").mkdir()
    refused(run, "folder.pt2", "is no file; give the model as a file")
    refused(run, "none.pt2", "no model at none.pt2; check the path")
    refused(run, "", "is no file")
    (world / "model").write_bytes(b"?")
    refused(run, "model", "unknown kind of model file")


def test_one_output_is_declared_on_the_command(run, does, world, schema):
    module = nn.Sequential(nn.Linear(schema.width, 1), nn.Sigmoid())
    save_exported(module, schema, world / "one.pt2")
    refused(run, "one.pt2", "--model-classes granted)")
    command = (*EXPLAIN, "--model", "one.pt2", "--iterations", "1")
    does(*command, "--model-classes", "granted")
    refused(run, "one.pt2", "out of: refused,granted", "--model-classes", "maybe")
