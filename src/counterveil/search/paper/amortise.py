"""The amortised search: Algorithm 2's answer in one step.

A small network learns the minimiser of L_cs once: a(q, s, which columns may move) -> δ. It is
trained by L_cs itself, on legal rows drawn from the Veil, towards random other classes, with random
features held. It is post-processing of the Veil and of the guide; with guidance `surrogate`, of the
Veil alone. A warm file keeps the weights under a name for veil, model and version; one of another
name is not used, and a file that is no warm file is never written over. The command keeps warm
files in the user's cache folder; the oldest go first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from counterveil.errors import RequestError
from counterveil.files import Place, write_whole
from counterveil.models import Rows, TargetModel
from counterveil.networks import Amortiser, is_free, seeded
from counterveil.schema import Family
from counterveil.search.constraints.bounds import Box, box_around
from counterveil.search.constraints.projection import Snap
from counterveil.search.paper.algorithm2 import SearchObjective, Weights
from counterveil.terminal import progress_bar
from counterveil.veil import Veil

TRAINING_ROWS = 20_000
LEARNING_RATE = 3e-3
LATENT_SPREAD = 0.5  # of the codes of drawn rows; codes are sigmoids in (0, 1)
FILE_VERSION = "1"
MOST_KEPT = 256 << 20  # bytes of warm files in a folder
LONGEST_HEADER = 1 << 20  # bytes before the weights in a file


class Lessons(NamedTuple):
    """How long to learn: optimiser steps, and queries in each."""

    steps: int
    batch: int


LESSONS: dict[Family, Lessons] = {
    "mixed": Lessons(4000, 256),
    "image": Lessons(1000, 128),
    "binary": Lessons(1500, 128),
}


@torch.no_grad()
def legal_rows(veil: Veil, snap: Snap, count: int, *, seed: int, device: torch.device) -> Tensor:
    """`count` legal rows drawn from the Veil alone, (count, width): what is learnt from.

    What matters lies between the classes, so codes are mixtures of two prototypes plus noise. A
    random share of the features of each row is then drawn anew, which spreads the rows over the
    whole cube.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator).to(device)

    prototypes = veil.prototypes.to(device)
    first, second = torch.randint(len(prototypes), (2, count), generator=generator).to(device)
    share = uniform(count, 1)
    codes = share * prototypes[first] + (1 - share) * prototypes[second]
    noise = torch.randn(codes.shape, generator=generator).to(device)
    decoded = veil.autoencoder.to(device).decode(codes + LATENT_SPREAD * uniform(count, 1) * noise)

    features = veil.schema.features
    widths = torch.tensor([feature.width for feature in features])
    feature_of_column = torch.repeat_interleave(torch.arange(len(features)), widths).to(device)
    drawn_anew = uniform(count, len(features)) < uniform(count, 1)
    blend = torch.where(drawn_anew[:, feature_of_column], uniform(*decoded.shape), decoded)
    return snap(blend, Box(torch.zeros_like(blend), torch.ones_like(blend)))


def learn_amortiser(
    veil: Veil,
    guide: TargetModel,
    weights: Weights,
    snap: Snap,
    progress: bool = False,
    max_steps: int | None = None,
) -> Amortiser:
    """The network a for a guide under a veil, learnt from rows that the veil gives.

    The target of a row is a random class, but not the one that the guide gives it.
    """
    device = snap.part_of_column.device
    steps, batch = LESSONS[veil.schema.family]
    steps = min(steps, max_steps or steps)
    queries = legal_rows(veil, snap, TRAINING_ROWS, seed=0, device=device)
    objective = SearchObjective(
        model=guide,
        autoencoder=veil.autoencoder.to(device),
        weights=weights,
        queries=queries,
        targets=torch.zeros(len(queries), dtype=torch.long, device=device),
        prototypes=veil.prototypes.to(device),
        box=box_around(guide.encoding, queries.cpu().double().numpy()).to(device),
    )
    classes, latent = objective.prototypes.shape
    network = seeded(lambda: Amortiser(queries.shape[1], classes, latent), 0).to(device)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        answers = [guide.ask(Rows.of_points(part, guide.encoding)) for part in queries.split(8192)]
        likeliest_first = torch.cat(answers).argsort(dim=1, descending=True)
    optimiser = torch.optim.Adam(network.parameters(), LEARNING_RATE, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps)
    features = int(snap.feature_of_part.max()) + 1
    with progress_bar("learning to search", steps, show=progress) as tick:
        for step in range(steps):
            rows = torch.randint(len(queries), (batch,), generator=generator).to(device)
            # Half of the time the runner-up, which is what people ask for when they name no class.
            rank = torch.randint(1, classes, (batch,), generator=generator)
            rank = torch.where(torch.rand(batch, generator=generator) < 0.5, rank, 1).to(device)
            targets = likeliest_first[rows].gather(1, rank[:, None])[:, 0]
            # In half of the lessons a random share of the features is held.
            share = torch.rand(batch, 1, generator=generator)
            share = share * (torch.rand(batch, 1, generator=generator) < 0.5)
            held = (torch.rand(batch, features, generator=generator) < share).to(device)
            part = objective.select(rows, targets)
            box = part.box.holding(snap.columns_of_features(held), part.queries)
            delta = network(part.queries, targets, is_free(box.lower, box.upper))
            loss = replace(part, box=box)(delta).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            tick(step + 1, "steps")
    return network.requires_grad_(False).eval()


def fingerprint(veil: Veil, model: TargetModel, snap: Snap) -> str:
    """The name of a model under a veil: by its answers on public rows, to three digits."""
    rows = legal_rows(veil, snap, 256, seed=1, device=snap.part_of_column.device)
    log_proba = model.ask(Rows.of_points(rows, model.encoding))
    answers = (log_proba.exp() * 1000).round().to(torch.int32).cpu()
    content = f"{FILE_VERSION} {veil.digest} ".encode() + answers.numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


def save_amortiser(place: Place, amortiser: Amortiser, name: str) -> None:
    """Keep the weights under a name in a file, or in a folder of warm files."""
    path = _file_in(place, name)
    if path != Path(place) and path.is_symlink():
        raise RequestError(f"{path} is a link, which is not followed; remove it")
    check_warm_file(path)
    tensors = {key: value.contiguous().cpu() for key, value in amortiser.state_dict().items()}
    write_whole(path, save_tensors(tensors, metadata={"counterveil": name}))
    if path != Path(place):
        _drop_oldest(Path(place))


def check_warm_file(path: Place) -> None:
    """Refuse a `path` where something else than a warm file, an empty file or a folder is."""
    if os.path.lexists(path) and not (Path(path).is_dir() or _is_warm_file(path)):
        raise RequestError(f"{path} is not a warm file and is left alone; name another file")


def cache_folder() -> Path:
    """The user's folder of warm files, for that user alone; an OSError where there can be none."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    above = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    folder = above / "counterveil"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    owner = getattr(os, "getuid", lambda: status.st_uid)()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner or status.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder of yours alone")
    return folder


def load_amortiser(place: Place, veil: Veil, name: str) -> Amortiser | None:
    """The network for a veil from a file or a folder of them; None if none has that name."""
    classes, latent = veil.prototypes.shape
    amortiser = Amortiser(veil.schema.width, classes, latent)
    path = _file_in(place, name)
    if not _is_warm_file(path):
        return None
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("counterveil") != name:
                return None
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        amortiser.load_state_dict(tensors)
    except (OSError, SafetensorError, RuntimeError):  # RuntimeError: of another shape
        return None
    if not all(bool(value.isfinite().all()) for value in tensors.values()):
        return None
    if path != Path(place):
        with suppress(OSError):
            os.utime(path)  # the oldest is the one that was not used for longest
    return amortiser.requires_grad_(False).eval()


def _file_in(place: Place, name: str) -> Path:
    return Path(place) / f"{name}.warm" if Path(place).is_dir() else Path(place)


def _is_warm_file(path: Place) -> bool:
    """Whether `path` is a regular file that is empty, or has the header of a warm file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            start = file.read(8)
            size = int.from_bytes(start, "little")
            header = json.loads(file.read(size)) if 0 < size <= LONGEST_HEADER else None
    except (OSError, ValueError, RecursionError):
        return False
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    return not start or (isinstance(metadata, dict) and "counterveil" in metadata)


def _drop_oldest(folder: Path) -> None:
    """Remove warm files, those first that were not used for longest, until the rest is small."""
    with suppress(OSError):  # another process may be doing the same
        named = (
            path for path in folder.iterdir() if re.fullmatch(r"[0-9a-f]{64}\.warm", path.name)
        )
        kept = [(path.lstat(), path) for path in named]
        files = [
            (each.st_mtime, each.st_size, path) for each, path in kept if stat.S_ISREG(each.st_mode)
        ]
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= MOST_KEPT:
                break
            path.unlink(missing_ok=True)
            total -= size
