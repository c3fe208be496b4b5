"""`bench no`: what a no costs beside a yes, and the first call; and so of earlier code, in one run.

People of the embedded Adult table whom a model refuses ask one by one, with the schema's rules.
Rows of made-up bits in many classes ask a network together, for the class that it finds next.

| column | meaning |
|---|---|
| code | `present`, or `earlier` (`--against`: the folder `src` of an earlier version of the code) |
| found, not_found | people with an answer, and without |
| yes_seconds, no_seconds | the processor's, for a person of each kind, in the mean |
| ratio | of these two |
| first_nearest_seconds | the processor's, for the first call with `prefer="nearest"` |
| first_bits_seconds | the processor's, for the first call about rows of bits, with all it learns |
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from counterveil.curator import Curator
from counterveil.schema import Binary, Label, Schema
from counterveil_lab.pipelines import pipeline
from counterveil_lab.product import embedded_adult
from counterveil_lab.results import Results, Row

EPSILON, TARGET = 0.75, ">50K"
MODELS = ("logistic", "boosted", "private model")
PEOPLE, QUICK_PEOPLE = 60, 4
ASKED, QUICK_ASKED = 20, 1  # one by one, of each kind
# Runs with the code that is measured, and knows nothing of this package.
MEASURE = """
import json, pickle, sys, time
from counterveil import Explainer
veil, people, model, target, asked = pickle.load(open(sys.argv[1], "rb"))
def seconds(of, prefer):
    begun = time.process_time()
    for row in range(len(of)):
        explainer.explain(of.iloc[[row]], target, prefer=prefer, progress=False)
    return (time.process_time() - begun) / max(1, len(of))
explainer = Explainer(veil, model)
goal = explainer.veil.schema.label.classes.index(target)
people = people[explainer.decide(people).argmax(axis=1) != goal].head(int(sys.argv[2]))
first = seconds(people.head(1), "nearest")
found = explainer.explain(people, target, progress=False).valid
yes, no = people[found].head(asked), people[~found].head(asked)
seconds(yes.head(2), "believable")
told = {"found": int(found.sum()), "not_found": int((~found).sum())}
told |= {"yes_seconds": seconds(yes, "believable"), "no_seconds": seconds(no, "believable")}
told["ratio"] = told["no_seconds"] / told["yes_seconds"] if len(no) and len(yes) else None
print(json.dumps({**told, "first_nearest_seconds": first}))
"""
MEASURE_BITS = """
import json, pickle, sys, time
from counterveil import Explainer
veil, people, model = pickle.load(open(sys.argv[1], "rb"))
explainer = Explainer(veil, model)
begun = time.process_time()
found = explainer.explain(people.head(int(sys.argv[2])), progress=False).valid
told = {"found": int(found.sum()), "not_found": int((~found).sum())}
print(json.dumps({**told, "first_bits_seconds": time.process_time() - begun}))
"""
TRAINED = 60  # steps of the network on bits
BITS, QUICK_BITS = (4000, 446, 30), (300, 12, 3)  # rows, columns, classes


def bench(
    folder: Path,
    command: str,
    *,
    quick: bool,
    say: Callable[[str], None],
    against: Path | None = None,
) -> None:
    """Measure every model, with the present code and with that of `against`."""
    results = Results(folder, "bench-no", command)
    schema, people, released = embedded_adult(EPSILON)
    columns, codes = list(schema.columns), {"present": None, "earlier": against}
    measured = {code: source for code, source in codes.items() if code == "present" or source}
    table, count = people.test[columns].head(20 * PEOPLE), QUICK_PEOPLE if quick else PEOPLE
    with tempfile.TemporaryDirectory() as place:
        veil, task = Path(place) / "adult.veil", Path(place) / "task.pickle"
        released.save(veil)
        for kind in MODELS:
            model = None
            if kind != "private model":
                labels = people.train[schema.label.name]
                model = pipeline(kind, people.train[columns], labels)  # type: ignore[arg-type]
            asked = QUICK_ASKED if quick else ASKED
            task.write_bytes(pickle.dumps((str(veil), table, model, TARGET, asked)))
            for code, source in measured.items():
                found = _measured(MEASURE, task, count, source)
                results.add({"model": kind, "code": code, **found})
                say(f"{kind}, {code}: {found}")
        schema, bits = bits_table(*(QUICK_BITS if quick else BITS))
        Curator(schema).release(bits, EPSILON, progress=False).save(veil)
        asked_bits = bits[list(schema.columns)].head(PEOPLE)
        task.write_bytes(pickle.dumps((str(veil), asked_bits, bits_network(schema, bits))))
        for code, source in measured.items():
            found = _measured(MEASURE_BITS, task, count, source)
            results.add({"model": "network on bits", "code": code, **found})
            say(f"bits, {code}: {found}")


def bits_table(rows: int, columns: int, classes: int) -> tuple[Schema, pd.DataFrame]:
    """Made-up rows of bits: each class has its own share of ones in every column."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, rows)
    ones = rng.choice([0.05, 0.2, 0.6], (classes, columns), p=[0.6, 0.25, 0.15])
    bits = (rng.random((rows, columns)) < ones[label]).astype(int)
    names = [f"bit{place}" for place in range(columns)]
    features = tuple(Binary(name=name, values=(0, 1)) for name in names)
    schema = Schema(features=features, label=Label(name="kind", classes=tuple(range(classes))))
    return schema, pd.DataFrame(bits, columns=names).assign(kind=label)


def bits_network(schema: Schema, bits: pd.DataFrame) -> nn.Module:
    """A network over the columns as they are, which is their encoding."""
    points = torch.tensor(bits[list(schema.columns)].to_numpy(), dtype=torch.float32)
    labels = torch.tensor(bits[schema.label.name].to_numpy())
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(schema.width, 64), nn.Tanh(), nn.Linear(64, len(schema.label.classes))
    )
    steps = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(TRAINED):
        steps.zero_grad()
        nn.functional.cross_entropy(model(points), labels).backward()
        steps.step()
    return model


def _measured(script: str, task: Path, people: int, source: Path | None) -> Row:
    """What a process with the code in `source` found."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if source is not None:
        environment["PYTHONPATH"] = str(source.resolve())
    call = [sys.executable, "-c", script, str(task), str(people)]
    ran = subprocess.run(call, env=environment, stdout=subprocess.PIPE, check=True)
    found: Row = json.loads(ran.stdout.splitlines()[-1])
    return found
