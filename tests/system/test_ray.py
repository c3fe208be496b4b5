"""Work in parts: the same integers and the same answers from any number of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rows import random_rows

from counterveil import Explainer, Rules
from counterveil.cluster import ATTEMPTS, Cluster, cluster_of
from counterveil.curator import Curator
from counterveil.curator.coefficients import CellCounts, Counting, GridCounts, fill
from counterveil.curator.table import PrivateTable
from counterveil.errors import BudgetError, DataError, InternalError, RequestError
from counterveil.models import save_exported
from counterveil.parts import parquet_files
from counterveil.population.grid import Grid
from counterveil.population.numbers import Ladders
from counterveil.privacy import Budget
from counterveil.privacy.ledger import Ledger

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'counterveil[scale]'")
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # of Ray's own modules
    pytest.mark.full_lessons,  # here as on workers
]
ROWS = 900


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes on this machine, as several machines would be one."""
    from ray.cluster_utils import Cluster as Nodes

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - or workers wait for tests beside
    here = {"num_cpus": 2, "node_ip_address": "127.0.0.2"}  # Ray takes 127.0.0.1 for another one
    try:
        started = Nodes(initialize_head=True, head_node_args={**here, "include_dashboard": False})
        started.add_node(**here)
    except Exception as error:  # no shared memory, no second address of this machine, …
        pytest.skip(f"Ray cannot start here: {type(error).__name__}")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield started.address
    ray.shutdown()
    started.shutdown()


@pytest.fixture(scope="module")
def cluster(nodes):
    with Cluster(nodes) as opened:
        yield opened


@pytest.fixture(scope="module")
def people(schema):
    return random_rows(schema, ROWS, seed=8).assign(who=np.arange(ROWS) % 250, id=range(ROWS))


@pytest.fixture(scope="module")
def folder(people, tmp_path_factory):
    """Files of several row groups, which are cut and put together."""
    place = tmp_path_factory.mktemp("rows")
    for number, start in enumerate((0, 400, 500)):
        part = people.iloc[start : (400, 500, ROWS)[number]]
        part.to_parquet(place / f"{number}.parquet", index=False, row_group_size=150)
    return place


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("counterveil.curator.coefficients.ROWS_A_PART", 120)


def counted(schema, place, cluster=None, **unit):
    table = PrivateTable(place, schema, cluster=cluster, **unit)
    grid = Grid(schema, 16)
    sums = GridCounts(grid, 2), CellCounts(Ladders(schema, 12))
    fill(table, *sums)
    return [array for each in sums for array in each.exact]


def same_sums(one, two):
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.usefixtures("cluster")
def test_the_same_integers_from_any_number_of_workers(schema, folder, nodes):
    units = ({}, ROWS), ({"unit_column": "who", "max_records": 2}, 500)
    alone = [counted(schema, folder, **unit) for unit, _ in units]
    for sums, (_, rows) in zip(alone, units, strict=True):
        assert sums[0].sum() == rows * len(schema.features)
    for workers in (1, 3):
        with Cluster(nodes, workers) as some:
            for sums, (unit, _) in zip(alone, units, strict=True):
                same_sums(sums, counted(schema, folder, some, **unit))


def test_parts_are_all_rows_in_order(people, folder):
    files = parquet_files(str(folder))
    assert parquet_files(f"file://{folder}").rows == ROWS
    for most in (1, 7, 150, 160, 399, 10_000):
        parts = files.parts(most)
        assert all(0 < part.rows <= most for part in parts)
        ids = [batch["id"].to_numpy() for part in parts for batch in part.batches(["id"], 64)]
        np.testing.assert_array_equal(np.concatenate(ids), people["id"])


@dataclass(frozen=True)
class Deadly(Counting):
    """Counting by workers that die: at their first try of each part, or always."""

    marks: Path = Path()
    always: bool = False

    def count(self, part):
        mark = self.marks / f"{part[0].number}-{part[0].skip}"
        if self.always or not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().count(part)


def test_a_part_whose_worker_died_is_counted_once(schema, folder, cluster, tmp_path, monkeypatch):
    alone = counted(schema, folder)
    monkeypatch.setattr("counterveil.curator.coefficients.ROWS_A_PART", 400)
    monkeypatch.setattr(
        "counterveil.curator.coefficients.Counting", lambda *given: Deadly(*given, marks=tmp_path)
    )
    same_sums(alone, counted(schema, folder, cluster))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow  # half a minute of workers that start
def test_a_part_that_kills_every_worker_ends_the_work(schema, folder, cluster, tmp_path):
    table = PrivateTable(folder, schema)
    work = Deadly(schema, (), marks=tmp_path, always=True)
    with pytest.raises(RequestError, match=f"was lost {ATTEMPTS} times"):
        list(cluster.each(work, table.private_parts(10_000)))


LOCAL = """
import psutil, sys
from counterveil.cluster import Cluster
with Cluster(workers=1) as cluster:
    assert list(cluster.each(lambda: abs, [-1])) == [(0, 1)]
    processes = psutil.Process().children(recursive=True)
    for process in [psutil.Process(), *processes]:
        for each in process.net_connections("inet"):
            if each.status == "LISTEN":
                print(each.laddr.ip)
"""


def test_a_cluster_of_this_machine_listens_on_this_machine_alone():
    pytest.importorskip("psutil")
    command = [sys.executable, "-c", LOCAL]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert done.stdout


@dataclass(frozen=True)
class Failing:
    error: Exception

    def __call__(self):
        return self.fail

    def fail(self, part):
        raise self.error


class Unknown:
    def __reduce__(self):
        return __import__, ("no_such_package",)


def test_what_a_worker_says_of_rows_stays_there(cluster):
    with pytest.raises(InternalError, match="ValueError") as told:
        list(cluster.each(Failing(ValueError("income 4711")), [1]))
    assert "4711" not in str(told.value)
    with pytest.raises(RequestError, match="cannot open what it was sent"):
        list(cluster.each(Unknown(), [1]))
    with pytest.raises(DataError, match="column 'x' is missing"):
        list(cluster.each(Failing(DataError("column 'x' is missing")), [1]))


def test_a_release_on_workers_is_charged_once_and_gives_a_veil(schema, folder, cluster, tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.open_account("loans", Budget(1))
    curator = Curator(schema, ledger=book.path, engine=cluster)
    out = tmp_path / "loans.veil"
    veil = curator.release(folder, 0.5, epochs=1, progress=False, save_to=out)
    assert [(entry.epsilon, entry.state) for entry in book.entries()] == [(0.5, "released")]
    assert veil.record is not None
    assert out.exists()
    exact = curator.score(folder, veil.model())
    assert exact.counts.tolist() == Curator(schema).score(folder, veil.model()).counts.tolist()


DRIVER = """
import os, signal, sys
from counterveil.cluster import Cluster
from counterveil.curator import Curator
from counterveil.schema import Schema

whole = Cluster.each

def each(self, work, parts):
    for found in whole(self, work, parts):
        os.kill(os.getpid(), signal.SIGKILL)  # after the charge, with sums of one part
        yield found

Cluster.each = each
schema, rows, book, out = sys.argv[1:]
Curator(Schema.load(schema), ledger=book, engine=Cluster(workers=1)).release(
    rows, 0.5, epochs=1, progress=False, save_to=out
)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
def test_a_driver_that_is_killed_leaves_its_charge_and_no_veil(schema, folder, tmp_path):
    schema.save(tmp_path / "schema.json")
    book, out = Ledger(tmp_path / "ledger.db"), tmp_path / "loans.veil"
    book.open_account("loans", Budget(1))
    given = [tmp_path / "schema.json", folder, book.path, out]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *map(str, given)], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert not out.exists()
    assert [(entry.epsilon, entry.state) for entry in book.entries()] == [(0.5, "reserved")]
    with pytest.raises(BudgetError):
        Curator(schema, ledger=book.path).release(folder, 0.6, epochs=1, progress=False)


def test_what_cannot_be_done_in_parts_is_refused(schema, rows, folder, tmp_path):
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for place in (rows, tmp_path / "rows.csv"):
        with pytest.raises(RequestError, match="Parquet files"):
            Curator(schema, engine="ray").release(place, 1.0, progress=False)
    with pytest.raises(RequestError, match="needs engine 'here'"):
        Curator(schema, engine="ray").release(folder, 1.0, mechanism="paper", progress=False)
    with pytest.raises(RequestError, match="engine must be"):
        cluster_of("spark")
    with pytest.raises(RequestError, match="workers must be"):
        Cluster(workers=0)


# Explaining


@pytest.fixture(scope="module")
def whole(veil, model, people, schema):
    """The answers of one call."""
    result = Explainer(veil, model).explain(people[list(schema.columns)], progress=False)
    return result.table()


def read(folder):
    return pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("part-*.parquet"))])


def same(found, whole):
    found = found[whole.columns].reset_index(drop=True)
    assert found["query"].tolist() == whole["query"].tolist()
    assert found["status"].tolist() == whole["status"].tolist()
    assert (found["distance"] - whole["distance"]).abs().max() < 0.05


@pytest.mark.parametrize("engine", ["here", "ray"])
def test_answers_in_parts_are_those_of_one_call(
    veil, model, folder, whole, tmp_path, engine, request
):
    where = request.getfixturevalue("cluster") if engine == "ray" else engine
    summary = Explainer(veil, model).explain_files(
        folder, tmp_path / "out", engine=where, part_rows=110, copied=["id"], progress=False
    )
    found = read(tmp_path / "out")
    same(found, whole)
    assert found["id"].tolist() == list(range(ROWS))
    assert summary.rows == summary.explained_now == ROWS
    counts = whole["status"].value_counts()
    assert summary.counts == counts.reindex(summary.counts, fill_value=0).to_dict()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rows"] == ROWS


def test_a_run_goes_on_and_another_question_is_refused(veil, model, folder, whole, tmp_path):
    explainer, out = Explainer(veil, model), tmp_path / "out"
    explainer.explain_files(folder, out, part_rows=100, progress=False)
    parts = sorted(out.glob("part-*.parquet"))
    times = {path: path.stat().st_mtime_ns for path in parts}
    parts[1].unlink()
    parts[3].write_bytes(b"half a file")
    again = explainer.explain_files(folder, out, part_rows=100, progress=False)
    assert again.explained_now == sum(len(pd.read_parquet(parts[at])) for at in (1, 3))
    assert times[parts[0]] == parts[0].stat().st_mtime_ns
    same(read(out), whole)
    with pytest.raises(RequestError, match=r"another run \(other asked\)"):
        explainer.explain_files(folder, out, part_rows=100, max_changes=1, progress=False)
    with pytest.raises(RequestError, match=r"another run \(other .*model"):
        Explainer(veil).explain_files(folder, out, part_rows=100, progress=False)


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
def test_a_killed_run_on_workers_goes_on(veil, model, schema, folder, tmp_path):
    veil.save(tmp_path / "x.veil")
    save_exported(model, schema, tmp_path / "model.pt2")
    words = ["--veil", tmp_path / "x.veil", "--model", tmp_path / "model.pt2", "--queries", folder]
    words += ["--out", tmp_path / "out", "--part-rows", 40, "--copy", "id"]
    words += ["--on", "ray", "--workers", 1]
    command = [sys.executable, "-m", "counterveil", "explain", *map(str, words)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while run.poll() is None and len(list((tmp_path / "out").glob("part-*"))) < 3:
        time.sleep(0.05)
    run.kill()
    said = run.communicate()
    before = len(list((tmp_path / "out").glob("part-*")))
    assert 3 <= before < 27, said
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["explained_now"] < ROWS
    assert read(tmp_path / "out")["id"].tolist() == list(range(ROWS))


def test_wrong_queries_are_named_and_what_is_written_stays(veil, model, people, tmp_path):
    wrong = people.assign(housing=people["housing"].where(people["id"] != 700, "castle"))
    wrong.to_parquet(tmp_path / "rows.parquet", index=False)
    explainer, out = Explainer(veil, model), tmp_path / "out"
    with pytest.raises(DataError, match="in the rows from number 601 on"):
        explainer.explain_files(tmp_path / "rows.parquet", out, part_rows=300, progress=False)
    assert len(list(out.glob("part-*"))) == 2
    with pytest.raises(RequestError, match="for Parquet files"):
        explainer.explain_files(tmp_path / "rows.csv", tmp_path / "other", progress=False)
    people.head(0).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="empty"):
        explainer.explain_files(tmp_path / "none.parquet", tmp_path / "none", progress=False)


@pytest.mark.slow
def test_rules_travel(veil, model, folder, cluster, tmp_path):
    summary = Explainer(veil, model).explain_files(
        folder, tmp_path / "out", "granted", rules=Rules(immutable=["income"]), k=2, engine=cluster,
        prefer="nearest", method="iterations", iterations=20, progress=False,
    )  # fmt: skip
    found = read(tmp_path / "out")
    assert len(found) == 2 * ROWS == 2 * summary.rows
    original = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))])
    assert np.allclose(found["income"], original["income"].repeat(2))
