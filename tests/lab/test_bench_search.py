"""Every part of `bench search` at toy size, the floor, the pictures, and the command."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest
import torch
from bench import gpu as roofline
from bench import head, peers, search
from bench.peers import QUICK, evaluation_of, release
from torch import nn

from counterveil.curator import curator
from counterveil.errors import RequestError
from counterveil.search.paper import student
from counterveil_lab.product import query_batch
from counterveil_lab.results import stored_rows
from counterveil_lab.targets import encoded

TOOLS = Path(__file__).parents[2] / "tools"

TOY = replace(QUICK, queries=12, train=300, repeats=1)
has_dice = importlib.util.find_spec("dice_ml") is not None
KEYS = {"dataset", "method", "mechanism", "guidance", "epsilon", "delta", "seed", "batch"}


@pytest.fixture(autouse=True)
def short_lessons(monkeypatch):
    """What is learnt is learnt badly and at once."""
    trainings = {
        family: replace(training, samples=300, surrogate_epochs=1)
        for family, training in curator.TRAININGS.items()
    }
    monkeypatch.setattr(curator, "TRAININGS", trainings)
    monkeypatch.setitem(peers.METHODS["algorithm-2"], "iterations", 10)
    monkeypatch.setattr(student, "STUDENT_ROWS", 200)


def run(part, size=TOY, seeds=1):
    found = list(search.PARTS[part](size, seeds))
    for row in found:
        assert row.keys() >= KEYS
        assert row["seconds_per_query"] >= 0
        assert search._in_words(row)
    return found


def quick_peers(monkeypatch):
    """The other methods with few iterations, and dice-ml by its quickest."""
    few = {"Revise": {"iterations": 5}, "Cadex": {"epochs": 20}}
    for name, options in {**few, "Cchvae": {"samples": 10, "shells": 20}}.items():
        usual = getattr(peers, name)
        fewer = {"__init__": partialmethod(usual.__init__, **options)}
        monkeypatch.setattr(peers, name, type(name, (usual,), fewer))

    class Dice(peers.Dice):
        def __init__(self, *given, method, **options):
            more = {"max_iter": 2, "min_iter": 1} if method == "gradient" else {}
            super().__init__(*given, method=method, **options, **more)

    monkeypatch.setattr(peers, "Dice", Dice)


@pytest.mark.slow
def test_peers_are_measured_beside_counterveil(monkeypatch):
    quick_peers(monkeypatch)
    found = run("peers", seeds=2)
    assert {row["batch"] for row in found if row["seed"] == 1} == {12}
    methods = {row["method"] for row in found}
    assert methods >= {"counterveil", "counterveil-unpolished", "algorithm-2", "cadex-0",
                       "cadex-0.5", "cchvae", "revise"}  # fmt: skip
    assert not has_dice or methods >= {"dice-random", "dice-gradient"}
    for method in methods:
        mine = [row for row in found if row["method"] == method]
        assert {row["batch"] for row in mine} == {12, 10, 1}
        assert all(("flip_ratio" in row) == (row["batch"] == 12) for row in mine)
    ours = [row for row in found if row["method"] == "counterveil" and row["guidance"] == "model"]
    assert all(row["times_counterveil"] == 1 and row["warm_up_seconds"] > 0 for row in ours)
    theirs = [row for row in found if row["method"] in {"cchvae", "revise"}]
    assert all(row["warm_up_seconds"] > 0 and row["epsilon"] is None for row in theirs)
    assert all(row["legal"] == 1 for row in found if row.get("flip_ratio", 0) > 0)


def test_the_stages_of_a_single_answer():
    found = {row["stage"]: row for row in run("single")}
    assert list(found) == ["whole", "read", "search", "asking"]
    assert found["whole"]["share"] == 1
    assert found["asking"]["cpu_seconds_per_query"] < found["search"]["cpu_seconds_per_query"]
    assert {row["batch"] for row in found.values()} == {1}


def a_row(part, **columns):
    about = head("adult", "counterveil", 0.75)
    measured = {"batch": 500, "seconds_per_query": 1e-4, "flip_ratio": 1.0, "distance": 0.5}
    return {"part": part, **about, **measured, **columns}


def test_the_picture_is_the_same_again(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from bench.picture import draw_search

    rows = [
        a_row("peers"),
        a_row("peers", batch=1, distance=None, flip_ratio=None),
        a_row("peers", guidance="surrogate", flip_ratio=0.0, distance=float("nan")),
        a_row("peers", method="cadex-0", epsilon=None, guidance=None, seconds_per_query=1e-2),
    ]
    for folder in ("first", "again"):
        draw_search(rows, tmp_path / folder)
    first, again = (tmp_path / each / "bench-search-peers.svg" for each in ("first", "again"))
    assert first.read_bytes() == again.read_bytes()


def test_what_runs_on_a_gpu_needs_nothing_of_the_private_side():
    code = (
        f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import bench.gpu, counterveil_lab.cli; "
        "sys.exit(any(name in sys.modules for name in ('opendp', 'counterveil.curator')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_multiply_adds_are_those_of_the_layers():
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    shapes = roofline.shapes_of((network,))
    assert shapes == [(3, 5), (5, 2)]
    assert roofline.multiply_adds(shapes) == 25
    assert roofline.matrix_rate(shapes, square=16, rows=8) > 0
    assert roofline.copy_bandwidth(torch.device("cpu"), size=1024) > 0


def test_the_device_is_measured_against_its_limits(tmp_path):
    evaluation = evaluation_of("adult", 0, TOY)
    encoding, device = evaluation.judge.encoding, torch.device("cpu")
    points = encoded(evaluation.queries, evaluation.data.schema)[0]
    drawn = roofline.jittered(points, 40, encoding, device)
    box = query_batch(drawn, torch.zeros(40, dtype=torch.long), encoding).box
    assert not bool(roofline.Snap(encoding, device).broken(drawn, box).any())
    assert len(torch.unique(drawn, dim=0)) > len(points)
    veil = release(evaluation, 0.75, 0, TOY)
    roofline.Inputs(veil, evaluation.model, points).save(tmp_path)
    given = roofline.Inputs.load(tmp_path)
    assert torch.equal(given.model(points), evaluation.model(points))
    found = list(roofline.measure_device(given, device, 64, square=16))
    assert [row["method"] for row in found] == ["counterveil-believable", "counterveil-nearest"]
    for row in found:
        assert row.keys() >= KEYS
        assert row["legal"] == 1
        assert row["share_of_bandwidth"] > 0
        assert row["share_of_matrix_rate"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_the_gpu_benchmark_says_so(tmp_path):
    with pytest.raises(RequestError, match="needs a CUDA device"):
        roofline.bench(tmp_path, "the command", quick=True, say=print)
    assert list(tmp_path.iterdir()) == []


def test_wrong_requests_are_one_line(tmp_path):
    (tmp_path / "bench-search.parquet").write_bytes(b"rows")
    for words, told in (("search --only nothing", "invalid choice"), ("search", "--overwrite")):
        call = [sys.executable, str(TOOLS / "bench"), *words.split(), "--out", str(tmp_path)]
        done = subprocess.run(call, check=False, capture_output=True, text=True)
        assert (done.returncode, told in done.stderr) == (2, True)


def test_one_part_goes_into_files_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers, "QUICK", TOY)
    search.measure_parts(str(tmp_path), "the command", True, "single", 1)
    stored = stored_rows(tmp_path, "bench-search-single")
    assert {(row["part"], row["command"]) for row in stored} == {("single", "the command")}
    assert "single: counterveil" in capsys.readouterr().out


def test_learning_is_shared_out_over_the_queries(monkeypatch):
    monkeypatch.delenv("COUNTERVEIL_DATA", raising=False)
    quick_peers(monkeypatch)
    monkeypatch.setattr(peers, "find_spec", lambda package: None)  # dice-ml takes most of the time
    size = replace(TOY, datasets=("adult", "mnist"))  # which is not there, and left out
    found = {row["method"]: row for row in run("warm-up", size)}
    assert {"counterveil-believable", "counterveil", "algorithm-2", "cchvae"} <= set(found)
    for method, row in found.items():
        learns = row["warm_up_seconds"] > 0
        assert learns == (method != "algorithm-2" and not method.startswith("cadex"))
        assert (row["milliseconds_of_500"] > row["milliseconds_of_50000"]) == learns
