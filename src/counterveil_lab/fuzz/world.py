"""The small project that the cases of `counterveil-lab fuzz` damage; it is the same each time."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from counterveil_lab.fuzz.damage import CANARY

RULES: dict[str, Any] = {
    "immutable": ["member"],
    "direction": {"age": "increase", "income": "any"},
    "allowed": {"income": [0, 9], "housing": ["rent", "own"]},
    "max_changes": 3,
    "costs": {"age": 2.0, "income": 0.5},
    "steps": {"income": 0.5},
    "relations": [["income", "<=", "age"]],
    "together": [["age", "housing"]],
    "only_one": [["age", "income"]],
    "transitions": {"housing": [["rent", "own"]]},
    "may_change": ["age", "income", "housing"],
}


def make_world(folder: Path) -> None:
    """Write the files that the cases change. They are the same each time."""
    import pandas as pd
    import torch

    from counterveil.build import Training
    from counterveil.curator import Curator
    from counterveil.encoding import Encoding
    from counterveil.models import save_exported
    from counterveil.privacy import Budget
    from counterveil.privacy.ledger import Ledger, Subject
    from counterveil.schema import Binary, Categorical, Label, Link, Numeric, Schema
    from counterveil.signature import SigningKey

    schema = Schema(
        name="loans",
        label=Label(name="loan", classes=("refused", "granted")),
        features=(
            Numeric(name="age", lower=18, upper=100, integer=True, direction="increase"),
            Numeric(name="income", lower=0, upper=10, missing=True),
            Categorical(name="housing", categories=("rent", "own", "free"), missing=True),
            Categorical(name="region", categories=(1, 2, 3)),
            Binary(name="zone", values=("inner", "outer")),
            Binary(name="member", values=("no", "yes")),
        ),
        links=(Link(source="region", derived="zone", values={1: "inner", 2: "outer", 3: "outer"}),),
    )
    count, dice = 40, Random(0)
    region = [dice.randint(1, 3) for _ in range(count)]
    income = [round(dice.uniform(0, 10), 3) for _ in range(count)]
    rows = pd.DataFrame(
        {
            "age": [dice.randint(18, 100) for _ in range(count)],
            "income": income,
            "housing": [dice.choice(("rent", "own", "free")) for _ in range(count)],
            "region": region,
            "zone": ["inner" if each == 1 else "outer" for each in region],
            "member": [dice.choice(("no", "yes")) for _ in range(count)],
            "note": [CANARY] * count,
            "loan": ["granted" if each > 5 else "refused" for each in income],
        }
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(schema.width, 2)
    with torch.no_grad():
        model.weight *= 0.1
        model.weight[:, 1] = torch.tensor([-4.0, 4.0])
        model.bias[:] = torch.tensor([2.0, -2.0])
    schema.save(folder / "schema.json")
    rows.to_csv(folder / "rows.csv", index=False)
    rows.to_parquet(folder / "rows.parquet", index=False)
    rows.head(3).to_csv(folder / "queries.csv", index=False)
    rows.head(3).to_parquet(folder / "queries.parquet", index=False)
    save_exported(model, schema, folder / "model.pt2")
    (folder / "rules.json").write_text(json.dumps(RULES))
    # So large an ε that the noise is 0: the veil is the same each time.
    training = Training(200, 1, 64, 5e-3, (4,), 1)
    veil = Curator(schema).release(rows, 500.0, epochs=1, training=training, progress=False)
    key = SigningKey("office", bytes(range(32)))  # not secret: the files are the same each time
    key.save(folder / "office.key")
    veil.signed(key).save(folder / "loans.veil")
    _in_child(lambda: _more_models(folder, Encoding(schema).encode(rows), rows["loan"]))
    ledger = Ledger(folder / "ledger.db")
    ledger.open_account("loans", Budget(10.0, 1e-6))
    subject = Subject("record", max_records=1, units=len(rows), columns="0" * 64)
    ledger.commit(ledger.reserve("loans", Budget(0.5), "an earlier veil", subject), "0" * 64)


def _more_models(folder: Path, points: Any, labels: Any) -> None:
    """Models of the other formats, `other` with their ending; they want the optional packages."""
    import lightgbm
    import numpy as np
    import xgboost
    from onnx import TensorProto, helper, numpy_helper
    from sklearn.linear_model import LogisticRegression
    from skops import io as skops

    granted = (labels == "granted").to_numpy().astype(int)
    skops.dump(LogisticRegression().fit(points, granted), folder / "other.skops")
    options = {"objective": "binary:logistic", "max_depth": 2, "nthread": 1}
    boosted = xgboost.train(options, xgboost.DMatrix(points, granted), 3)
    for ending in (".json", ".ubj"):
        boosted.save_model(folder / f"other{ending}")
    few = {"objective": "binary", "num_leaves": 3, "min_data_in_leaf": 2, "num_threads": 1}
    silent = {**few, "verbosity": -1, "deterministic": True}
    light = lightgbm.train(silent, lightgbm.Dataset(points, granted), 3)
    light.save_model(folder / "other.txt")
    weights = np.zeros((points.shape[1], 2), np.float32)
    weights[1] = -8, 8
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["s"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", points.shape[1]])],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, ["rows", 2])],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array([4, -4], np.float32), "b"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "other.onnx").write_bytes(made.SerializeToString())


def _in_child(work: Callable[[], None]) -> None:
    """Do `work` in a process of its own: threads that it starts would not survive a fork."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the files of the fuzzed project could not be made")


@contextmanager
def learning_less() -> Iterator[None]:
    """Let networks learn from few samples; load what the commands load when they run."""
    import torch

    from counterveil.build import TRAININGS, Training
    from counterveil.search.paper import student

    for room in ("audit", "cli", "curator", "models", "report", "search"):
        importlib.import_module(f"counterveil.{room}")
    torch.set_num_threads(1)
    usual = dict(TRAININGS), student.STUDENT_ROWS
    TRAININGS.update(dict.fromkeys(TRAININGS, Training(200, 1, 64, 5e-3, (4,), 1)))
    student.STUDENT_ROWS = 200
    try:
        yield
    finally:
        trainings, student.STUDENT_ROWS = usual
        TRAININGS.update(trainings)


def warm_up(world: Path) -> None:
    """Explain once: what torch loads at its first use is then there for every case."""
    from counterveil import Explainer
    from counterveil.models import load_model
    from counterveil.tables import read_table
    from counterveil.veil import Veil

    veil = Veil.load(world / "loans.veil")
    explainer = Explainer(veil, load_model(world / "model.pt2", veil.schema))
    queries = read_table(world / "queries.csv", veil.schema)
    explainer.explain(queries, k=2, iterations=2, progress=False).to_html()
