"""Every network of a veil, and the one loop that trains them.

The autoencoder ψ is the paper's (sections 4.3 and 5.1): dense layers with sigmoid activations, a
normalisation without parameters before each layer so that what enters it lies in [-1, 1], and a
decoder that mirrors the encoder. The surrogate f~ is a classifier of encoded rows. A network is as
private as the rows it is trained on: (rows, width) tensors in the unit cube throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import RLock
from typing import Any, NotRequired, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor, nn

from counterveil.errors import RequestError
from counterveil.schema import Family, Pixels
from counterveil.terminal import Tick, silent

Network = TypeVar("Network", bound=nn.Module)
CACHED = 1 << 23  # float32 numbers: what a processor works on quickly
GPU_SHARE = 8  # of a GPU's free memory one part is worked on at once
_ONE_THREAD = RLock()  # how many threads torch uses belongs to the whole process


@dataclass(frozen=True)
class Architecture:
    """The paper's choices for one family of data (section 5.1).

    `tied` and `signed` read mechanism `paper` more literally. `tied`: one W for both ways and no
    bias, h = σ(Wᵀx) and x̂ = σ(hW); otherwise the decoder has weights of its own. `signed`: the
    objective is that of rows scaled to [-1, 1], as Eq. case_bound assumes; otherwise to [0, 1].
    """

    encoder: tuple[int, ...]  # neurons of each hidden layer
    epochs: int
    batch: int
    tied: bool = field(default=False, kw_only=True)
    signed: bool = field(default=False, kw_only=True)

    @property
    def widest(self) -> int:
        """K: the largest number of neurons over all hidden layers."""
        return max(self.encoder)


ARCHITECTURES: dict[Family, Architecture] = {
    "mixed": Architecture((32, 16), epochs=300, batch=128),
    "image": Architecture((256, 128, 64, 32), epochs=30, batch=256),
    "binary": Architecture((512, 256, 128, 64, 32), epochs=500, batch=256),
}


class UnitNorm(nn.Module):
    """Each row to mean 0 and variance 1, then cut to [-1, 1]; no parameter, no memory of rows."""

    def forward(self, rows: Tensor) -> Tensor:
        return nn.functional.layer_norm(rows, rows.shape[-1:]).clamp(-1, 1)


class Autoencoder(nn.Module):
    """ψ^Dec(ψ^Enc(x)): (rows, width) to codes (rows, latent) and back, all in the unit cube."""

    def __init__(self, width: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.hidden, self.latent = hidden, hidden[-1]
        self.encoder = _dense_layers((width, *hidden))
        self.decoder = _dense_layers((*reversed(hidden), width))

    @classmethod
    def new(cls, width: int, hidden: tuple[int, ...], seed: int) -> Autoencoder:
        """A network whose initial weights depend on `seed` alone."""
        return seeded(lambda: cls(width, hidden), seed)

    def start_at(self, means: Tensor) -> None:
        """Let the decoder begin with the means (width,) of the rows, which is slow to learn."""
        bias = list(self.decoder.parameters())[-1]
        bias.data.copy_(torch.logit(means, eps=1e-3))

    def encode(self, rows: Tensor) -> Tensor:
        return self.encoder(rows)

    def decode(self, codes: Tensor) -> Tensor:
        """ψ^Dec: (rows, latent) to (rows, width)."""
        return self.decoder(codes)

    def forward(self, rows: Tensor) -> Tensor:
        return self.decode(self.encode(rows))


def _dense_layers(sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [UnitNorm(), nn.Linear(wide, narrow), nn.Sigmoid()]
    return nn.Sequential(*layers)


@torch.no_grad()
def class_means(autoencoder: Autoencoder, rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Eq. prot_construct: ρ_s, the mean code of the rows of class s, as (classes, latent).

    They are as private as `rows`. A class without rows gets the mean of the other prototypes.
    """
    sums = torch.zeros(classes, autoencoder.latent, device=rows.device)
    counts = torch.bincount(labels, minlength=classes).to(sums.dtype)
    for part, classes_of_part in zip(rows.split(65536), labels.split(65536), strict=True):
        sums.index_add_(0, classes_of_part, autoencoder.encode(part))
    means = sums / counts.clamp(min=1)[:, None]
    means[counts == 0] = means[counts > 0].mean(dim=0)
    return means


def classifier(width: int, hidden: tuple[int, ...], classes: int) -> nn.Sequential:
    """A classifier of encoded rows in dense layers: (rows, width) to logits (rows, classes)."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.Tanh()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, classes))


class AsImages(nn.Module):
    """Encoded rows (rows, width) as images (rows, channels, height, breadth)."""

    def __init__(self, image: Pixels) -> None:
        super().__init__()
        self.shape = (image.height, image.breadth, image.channels)

    def forward(self, rows: Tensor) -> Tensor:
        return rows.reshape(len(rows), *self.shape).movedim(-1, 1)


def convolutional(image: Pixels, hidden: tuple[int, ...], classes: int) -> nn.Sequential:
    """A classifier of encoded images: (rows, width) to logits (rows, classes).

    `hidden`: maps of two convolutions that halve the image, and neurons of a dense layer.
    """
    one, two, neurons = hidden
    height, breadth = (((side + 1) // 2 + 1) // 2 for side in (image.height, image.breadth))
    return nn.Sequential(
        AsImages(image),
        nn.Conv2d(image.channels, one, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(one, two, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(two * height * breadth, neurons),
        nn.ReLU(),
        nn.Linear(neurons, classes),
    )


def sizes_of(classifier: nn.Sequential) -> tuple[int, ...]:
    """The `hidden` of a `classifier` or of a `convolutional` one."""
    layers = [each for each in classifier if isinstance(each, nn.Linear | nn.Conv2d)]
    return tuple(each.weight.shape[0] for each in layers[:-1])


def train_surrogate(
    points: Tensor,
    labels: Tensor,
    classes: int,
    *,
    hidden: tuple[int, ...],
    epochs: int,
    seed: int,
    image: Pixels | None = None,
) -> nn.Sequential:
    """f~: learns the class numbers `labels` (rows,) of samples `points` of the population.

    Of an `image` it is convolutional, and learns from `disturbed` images at a falling rate.
    """

    def new() -> nn.Sequential:
        if image is not None:
            return convolutional(image, hidden, classes)
        return classifier(points.shape[1], hidden, classes)

    surrogate = seeded(new, seed).to(points.device)
    dice = torch.Generator().manual_seed(seed)

    def loss_of(rows: Tensor) -> Tensor:
        some = points[rows] if image is None else disturbed(points[rows], image, dice)
        return nn.functional.cross_entropy(surrogate(some), labels[rows])

    rows, falls = len(points), image is not None
    fit(surrogate, loss_of, rows, seed=seed, epochs=epochs, batch=128, rate=2e-3, falls=falls)
    return surrogate


TURNS, STRETCH, SLANT, MOVE = 0.35, 0.2, 0.3, 0.09  # radians; shares; share of height; of a side
GAMMA, GRAIN = 0.7, 0.2  # largest logarithm of the exponent; largest deviation of a pixel


def random_maps(count: int, dice: torch.Generator, size: float = 1.0) -> Tensor:
    """Affine maps (count, 2, 3) that turn, stretch, slant and move an image a little at random.

    `size`: a share of the largest changes. As `torch.nn.functional.affine_grid` takes them.
    """

    def between(most: float) -> Tensor:
        return (torch.rand(count, generator=dice) * 2 - 1) * size * most

    turn, slant, wide, high = between(TURNS), between(SLANT), between(STRETCH), between(STRETCH)
    across = torch.stack([(1 + wide) * turn.cos(), slant - (1 + wide) * turn.sin()], dim=1)
    down = torch.stack([(1 + high) * turn.sin(), (1 + high) * turn.cos()], dim=1)
    moves = torch.stack([between(2 * MOVE), between(2 * MOVE)], dim=1)  # a side is 2 long
    return torch.cat([torch.stack([across, down], dim=1), moves[:, :, None]], dim=2)


def disturbed(points: Tensor, image: Pixels, dice: torch.Generator) -> Tensor:
    """Encoded images (rows, width), each turned, stretched, slanted and moved a little at random.

    Also made brighter or darker, with grain: images of P~ are not as varied as real ones.
    """
    maps = random_maps(len(points), dice)

    def between(most: float) -> Tensor:
        return (torch.rand(len(points), generator=dice) * 2 - 1) * most

    pictures = AsImages(image)(points)
    grid = nn.functional.affine_grid(
        maps.to(points.device), list(pictures.shape), align_corners=False
    )
    seen = nn.functional.grid_sample(pictures, grid, align_corners=False)
    exponents = between(GAMMA).exp().to(points.device)[:, None]
    rows = seen.movedim(1, -1).flatten(1).clamp(min=1e-4) ** exponents
    grain = torch.randn(rows.shape, generator=dice) * (between(GRAIN).abs()[:, None])
    return rows + grain.to(points.device)


def seeded(build: Callable[[], Network], seed: int) -> Network:
    """A new network whose initial weights depend on `seed` and on nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


class Adam:
    """Adam, in place, over some tensors; by step n the bias of its means is 1 - decay**n.

    torch.optim does the same, and loads torch's compiler when it is first used: that takes seconds.
    """

    MEAN, SQUARE, TINY = 0.9, 0.999, 1e-8

    def __init__(self, tensors: Sequence[Tensor], rate: float) -> None:
        self.tensors, self.rate, self.steps = list(tensors), rate, 0
        self._mean = [torch.zeros_like(each) for each in tensors]
        self._square = [torch.zeros_like(each) for each in tensors]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        self.steps += 1
        rate = self.rate / (1 - self.MEAN**self.steps)
        unbiased = 1 / math.sqrt(1 - self.SQUARE**self.steps)
        of_each = zip(self.tensors, gradients, self._mean, self._square, strict=True)
        for tensor, gradient, mean, square in of_each:
            mean.lerp_(gradient, 1 - self.MEAN)
            square.mul_(self.SQUARE).addcmul_(gradient, gradient, value=1 - self.SQUARE)
            size = square.sqrt().mul_(unbiased).add_(self.TINY)
            tensor.addcdiv_(mean, size, value=-rate)

    def select(self, rows: Tensor) -> None:
        """Go on with some rows of each tensor."""
        for held in (self.tensors, self._mean, self._square):
            held[:] = [each.detach()[rows] for each in held]


class FusedAdam:
    """torch.optim.Adam, fused, at one rate: the same to the bit, and without torch's compiler."""

    def __init__(self, tensors: Sequence[Tensor], rate: float) -> None:
        self.tensors, self.rate = list(tensors), rate
        self._means, self._squares = ([torch.zeros_like(each) for each in tensors] for _ in "12")
        self._steps = [torch.zeros((), device=each.device) for each in tensors]

    def zero_grad(self) -> None:
        for each in self.tensors:
            each.grad = None

    @torch.no_grad()
    def step(self) -> None:
        torch._foreach_add_(self._steps, 1)
        gradients: list[Any] = [each.grad for each in self.tensors]
        held: Any = (self.tensors, gradients, self._means, self._squares, [], self._steps)
        decays: dict[str, Any] = {
            "beta1": Adam.MEAN,
            "beta2": Adam.SQUARE,
            "eps": Adam.TINY,
            "weight_decay": 0.0,
        }
        torch._fused_adam_(*held, lr=self.rate, **decays, amsgrad=False, maximize=False)


class TrainingSchedule(TypedDict):
    """How long and how fast a network learns; `batch`: rows in a step.

    The rate stays, `falls` to 0 along a cosine, or `rises` first, which many layers need.
    """

    epochs: int
    batch: int
    rate: float
    falls: NotRequired[bool]
    rises: NotRequired[bool]


def fit(
    network: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    rows: int,
    *,
    seed: int,
    tick: Tick = silent,
    **schedule: Unpack[TrainingSchedule],
) -> None:
    """Minimise `loss_of(row numbers)` over shuffled batches of `rows` rows by Adam.

    The seed steers the batches. The network ends frozen. `tick` counts the epochs.
    """
    device = next(network.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    changes = schedule.get("rises") or schedule.get("falls")
    kind: Any = partial(torch.optim.Adam, fused=True) if changes else FusedAdam
    learning = [each for each in network.parameters() if each.requires_grad]
    optimiser = kind(learning, schedule["rate"])
    steps = max(1, schedule["epochs"] * -(-rows // schedule["batch"]))
    rates: torch.optim.lr_scheduler.LRScheduler | None = None
    if schedule.get("rises"):
        rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, schedule["rate"], steps)
    elif schedule.get("falls"):
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(schedule["epochs"]):
        order = torch.randperm(rows, generator=generator).to(device)
        for numbers in order.split(schedule["batch"]):
            loss = loss_of(numbers)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if rates is not None:
                rates.step()
        tick(epoch + 1, "epochs")
    network.requires_grad_(False).eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch: of tiny networks more only wait for each other, many times as long."""
    with _ONE_THREAD:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def check_finite(network: nn.Module) -> None:
    """Refuse a network that noise has driven to weights that are no numbers."""
    if not all(bool(weights.isfinite().all()) for weights in network.parameters()):
        raise RequestError("training diverged: the noise at this epsilon is too large; raise it")


def numbers_at_once(device: torch.device) -> int:
    """How many float32 numbers a step of a search may hold, about: what a cache or GPU likes."""
    if device.type != "cuda":
        return CACHED
    free, _ = torch.cuda.mem_get_info(device)
    return max(CACHED, free // GPU_SHARE // 4)


def pick_device(name: str) -> torch.device:
    """ "cpu", "cuda", "mps", or "auto" for the best that is there."""
    mps = torch.backends.mps.is_available()
    there = {"cuda": torch.cuda.is_available(), "mps": mps, "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, is_there in there.items() if is_there))
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RequestError(f"unknown device {name!r}; use cpu, cuda, mps or auto") from None
    if not there.get(device.type, False):
        raise RequestError(f"no {name!r} device on this machine; use cpu or auto")
    return device
