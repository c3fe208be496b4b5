"""The roofline: the least that an answer costs on a machine, and how near to it answers come.

An answer of Algorithm 2 is at least two chains of matrix products: the decoder and f, once. Their
multiply-adds over the best rate at which the machine multiplies matrices is a time that no code
which multiplies them can beat; snapping, polishing and tables come on top. On a GPU memory sets a
second limit: every answer reads a query with its target class and writes a row with a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bench import SLOW_S, head
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.search import Explainer
from counterveil.search.batch import QueryBatch
from counterveil.search.constraints.projection import Snap
from counterveil.search.options import Prefer, SearchOptions
from counterveil.veil import Veil
from counterveil_lab.datasets import load
from counterveil_lab.product import log_proba_at, nearest_legal, query_batch
from counterveil_lab.results import Results, Row
from counterveil_lab.targets import encoded, new_target, train_target

SQUARE = 2048  # the side of the large matrices
LONG = 16384  # rows of the matrices of the networks' own shapes
GPU_BATCH, QUICK_BATCH = 2**20, 2**14
COMPARED = 1024  # queries whose answers are compared with those of the processor
EPSILON = 0.75
VEIL, TENSORS = "adult.veil", "f-and-queries.safetensors"
JITTER = 0.05  # of a number's range: no two queries are the same
AT_A_TIME = 2**17  # queries that f is asked about together


def seconds_of(call: Callable[[], object], *, repeats: int = 9, warm: int = 1) -> list[float]:
    """Times of a call after `warm` calls that do not count; three times where it is slow."""
    for _ in range(warm):
        call()
    times: list[float] = []
    while len(times) < repeats and not (len(times) >= 3 and sum(times) > SLOW_S):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times


def shapes_of(networks: tuple[nn.Module, ...]) -> list[tuple[int, int]]:
    """(numbers in, numbers out) of every matrix product."""
    layers = [layer for network in networks for layer in network.modules()]
    return [(x.in_features, x.out_features) for x in layers if isinstance(x, nn.Linear)]


def multiply_adds(shapes: list[tuple[int, int]]) -> int:
    return sum(wide * narrow for wide, narrow in shapes)


def matrix_rate(
    shapes: list[tuple[int, int]],
    *,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    square: int = SQUARE,
    rows: int = LONG,
) -> float:
    """Multiply-adds a second: the better of a large square product and of the shapes' own."""
    place = device or torch.device("cpu")

    def filled(height: int, width: int) -> Tensor:
        return torch.rand(height, width, device=place).to(dtype)

    def multiply(pairs: list[tuple[Tensor, Tensor]]) -> None:
        for left, right in pairs:
            torch.mm(left, right)
        settle(place)

    own = [(filled(rows, wide), filled(wide, narrow)) for wide, narrow in shapes]
    large = [(filled(square, square),) * 2]
    return max(
        square**3 / min(seconds_of(lambda: multiply(large))),
        rows * multiply_adds(shapes) / min(seconds_of(lambda: multiply(own))),
    )


def copy_bandwidth(device: torch.device, size: int = 2**30) -> float:
    """Bytes a second, read and written, of a plain copy of `size` bytes."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        settle(device)

    return 2 * size / min(seconds_of(copy))


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Inputs:
    """What the benchmark of a device needs: a veil, f, and encoded held-out rows."""

    veil: Veil
    model: nn.Module
    points: Tensor

    @classmethod
    def make(cls, epochs: int | None = None) -> Inputs:
        """From Adult; needs all that a release needs."""
        from counterveil.curator import Curator

        data = load("adult")
        veil = Curator(data.schema).release(data.train, EPSILON, epochs=epochs, progress=False)
        return cls(veil, train_target(data), encoded(data.test, data.schema)[0])

    def save(self, folder: Path) -> None:
        """Two files, safe to ship."""
        folder.mkdir(parents=True, exist_ok=True)
        self.veil.save(folder / VEIL)
        tensors = {name: tensor.contiguous() for name, tensor in self.model.state_dict().items()}
        save_file({**tensors, "points": self.points}, folder / TENSORS)

    @classmethod
    def load(cls, folder: Path) -> Inputs:
        """What `save` left: it takes no more than the public side and the lab's networks."""
        veil = Veil.load(folder / VEIL)
        tensors = load_file(folder / TENSORS)
        points = tensors.pop("points")
        model = new_target(veil.schema)
        model.load_state_dict(tensors)
        return cls(veil, model.requires_grad_(False).eval(), points)


def bench(
    folder: Path,
    command: str,
    *,
    quick: bool,
    say: Callable[[str], None],
    inputs: Path | None = None,
) -> None:
    """`python tools/bench gpu`: answers a second of a CUDA device on Adult, against its limits.

    `inputs`: where veil, f and queries are, or are left for a machine that can release nothing.
    """
    epochs = 1 if quick else None
    if inputs is not None and not (inputs / TENSORS).exists():
        Inputs.make(epochs).save(inputs)
        say(f"veil, f and queries are in {inputs}")
    if not torch.cuda.is_available():
        raise RequestError("bench gpu needs a CUDA device, and there is none on this machine")
    device = torch.device("cuda")
    name = torch.cuda.get_device_name(device)
    say(f"{name}, torch {torch.__version__}")
    given = Inputs.make(epochs) if inputs is None else Inputs.load(inputs)
    results = Results(folder, "bench-gpu", command)
    for row in measure_device(given, device, QUICK_BATCH if quick else GPU_BATCH):
        results.add({"device": name, **row})
        say(
            f"{row['method']}: {row['answers_per_second'] / 1e6:,.1f}M answers a second, "
            f"flip ratio {row['flip_ratio']:.4f}; {row['share_of_bandwidth']:.1%} of the copy "
            f"bandwidth, {row['share_of_matrix_rate']:.1%} of the float32 matrix rate"
        )


def measure_device(
    given: Inputs, device: torch.device, batch: int, *, square: int = 8192
) -> Iterator[Row]:
    """A row of believable answers and one of the nearest, for `batch` queries on the device.

    The bytes are those of the least that must move: query and target in, row and verdict out. The
    boxes are left out: they could be made on the way.
    """
    explainer = Explainer(given.veil, given.model, device=device.type)
    started = time.perf_counter()
    explainer.warm_up(prefer="believable", progress=False)
    settle(device)
    warm_up_seconds = time.perf_counter() - started
    queries = jittered(given.points, batch, explainer.encoding, device)
    asked = query_batch(queries, _runner_up(explainer, queries), explainer.encoding)
    shapes = shapes_of((given.veil.autoencoder.decoder, given.model))  # each once at least
    work, sizes = multiply_adds(shapes), {"square": square, "rows": min(batch, 2**18)}
    rate, bf16_rate = (
        matrix_rate(shapes, device=device, dtype=dtype, **sizes)
        for dtype in (torch.float32, torch.bfloat16)
    )
    bandwidth = copy_bandwidth(device, min(2**30, 2**12 * batch))
    size = 8 * queries.shape[1] + 8 + 1
    limits = {"multiply_adds": work, "matrix_rate": rate, "matrix_rate_bf16": bf16_rate}
    limits |= {"bytes": size, "copy_bandwidth": bandwidth}
    for prefer in ("believable", "nearest"):
        seconds, kept = _timed(explainer, asked, prefer)
        each = batch / seconds
        row = head("adult", f"counterveil-{prefer}", EPSILON)
        row |= {"batch": batch, "warm_up_seconds": warm_up_seconds, **limits, **kept}
        row |= {"seconds_per_query": seconds / batch, "answers_per_second": each}
        row["share_of_bandwidth"] = each * size / bandwidth
        row["share_of_matrix_rate"] = each * work / rate
        row["share_of_matrix_rate_bf16"] = each * work / bf16_rate
        row["as_on_the_processor"] = _agreement(given, explainer, asked, prefer)
        yield row


def _timed(explainer: Explainer, batch: QueryBatch, prefer: Prefer) -> tuple[float, Row]:
    """Median seconds for all of a batch, and how good the answers are."""
    device, options = batch.queries.device, explainer.options(SearchOptions(prefer=prefer))

    def answer() -> tuple[Tensor, Tensor]:
        rows, ok = explainer.answer_tensors(batch, options)
        settle(device)
        return rows, ok

    seconds = median(seconds_of(answer, repeats=3, warm=1))
    rows, ok = answer()
    broken = Snap(explainer.encoding, device).broken(rows, batch.box)
    distance = torch.linalg.vector_norm((rows - batch.queries)[ok], dim=1)
    return seconds, {
        "flip_ratio": float(ok.float().mean()),
        "legal": float((~broken[ok]).float().mean()),
        "distance": float(distance.mean()),
    }


def _agreement(given: Inputs, there: Explainer, batch: QueryBatch, prefer: Prefer) -> float:
    """The share of the first queries to which the processor gives the same answer."""
    some = batch.select(slice(0, COMPARED))
    here = Explainer(given.veil, given.model)
    rows, _ = there.answer_tensors(some, there.options(SearchOptions(prefer=prefer)))
    some = some.to(torch.device("cpu"))
    own, _ = here.answer_tensors(some, here.options(SearchOptions(prefer=prefer)))
    return float(((rows.cpu() - own).abs().amax(dim=1) < 1e-4).float().mean())


def jittered(points: Tensor, count: int, encoding: Encoding, device: torch.device) -> Tensor:
    """`count` legal rows: those of `points` again and again, their numbers moved a little."""
    generator = torch.Generator().manual_seed(0)
    drawn = points[torch.randint(len(points), (count,), generator=generator)].to(device)
    noise = torch.rand(count, points.shape[1], generator=generator).to(device)
    return nearest_legal(drawn + JITTER * (2 * noise - 1), encoding)


@torch.no_grad()
def _runner_up(explainer: Explainer, queries: Tensor) -> Tensor:
    """The class that f finds most likely after the one it gives."""
    model = explainer.model.to(queries.device)
    order = [log_proba_at(model, part).argsort(dim=1) for part in queries.split(AT_A_TIME)]
    return torch.cat(order)[:, -2]
