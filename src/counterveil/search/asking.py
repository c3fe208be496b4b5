"""How the search asks a model: encoded rows go in, log-odds come out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterveil.encoding import Array
from counterveil.errors import ModelError
from counterveil.models import Rows, TargetModel

SAFELY = 1e-4  # log-odds: more than float arithmetic is off by
_is_over: ContextVar[Callable[[], bool]] = ContextVar("is_over", default=lambda: False)


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """A search that was told to stop."""


@contextmanager
def until(is_over: Callable[[], bool]) -> Iterator[None]:
    """Searches in this context end with `Stopped` where `is_over` is true when a model is asked."""
    token = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(token)


def go_on() -> None:
    """Raise `Stopped` if the search is to end. Called before a model is asked."""
    if _is_over.get()():
        raise Stopped


def wherever_it_can(ask: Callable[[Array], Tensor], groups: Array, classes: int) -> Tensor:
    """What a model says of rows, (rows, classes): NaN for the groups of rows that it cannot take.

    `ask(at)`: what it says of the rows at some positions. `groups`: a number for each row.
    """
    with suppress(ModelError):
        return ask(np.arange(len(groups))).double().cpu()
    found = torch.full((len(groups), classes), torch.nan, dtype=torch.float64)
    for each in np.unique(groups):
        at = np.flatnonzero(groups == each)
        with suppress(ModelError):
            found[torch.from_numpy(at)] = ask(at).double().cpu()
    return found


def class_margin(log_proba: Tensor, targets: Tensor) -> Tensor:
    """By how much the target class leads its strongest rival, in log-odds.

    `log_proba`: (rows, …, classes), of one model or of several; `targets`: (rows,). Returns
    (rows, …).
    """
    goals = targets.reshape(-1, *[1] * (log_proba.ndim - 1))
    if log_proba.shape[-1] == 2:
        ahead = log_proba[..., 1] - log_proba[..., 0]
        return torch.where(goals[..., 0] == 1, ahead, -ahead)
    goals = goals.expand(*log_proba.shape[:-1], 1)
    wanted = log_proba.gather(-1, goals)[..., 0]
    return wanted - log_proba.scatter(-1, goals, -torch.inf).amax(dim=-1)


@dataclass(frozen=True)
class Question:
    """What is asked of the model about a row: that the target class wins, with `least` probability.

    The class must win by more than float arithmetic is off.
    """

    model: TargetModel
    least: float = 0.0

    def log_proba(self, rows: Tensor) -> Tensor:
        """Log-probabilities (rows, classes) of encoded rows (rows, width)."""
        go_on()
        model = self.model
        if not len(rows):
            return rows.new_zeros(0, model.classes)
        if model.device.type == "cpu":
            asked = Rows.of_array(rows.cpu().numpy(), model.encoding, without_noise=True)
        else:
            asked = Rows.of_points(rows.to(model.device), model.encoding)
        with torch.no_grad():
            return model.ask(asked).to(rows.device)

    def margin(self, rows: Tensor, targets: Tensor) -> Tensor:
        """How far the model is beyond what is asked, in log-odds; accepted from 0 on, (rows,)."""
        return self.margin_of(self.log_proba(rows), targets)

    @torch.no_grad()
    def margin_as_is(self, points: Tensor, targets: Tensor) -> Tensor:
        """The same for points that are asked about as they are, on their own device."""
        return self._margin_at(points, targets)

    def margin_gradient(self, points: Tensor, targets: Tensor) -> Tensor:
        """The gradient of `margin_as_is` at points (rows, width), of the same shape."""
        points = points.detach().clone().requires_grad_(True)
        return torch.autograd.grad(self._margin_at(points, targets).sum(), points)[0]

    def _margin_at(self, points: Tensor, targets: Tensor) -> Tensor:
        go_on()
        log_proba = self.model.ask(Rows.of_points(points, self.model.encoding))
        return self.margin_of(log_proba, targets)

    def margin_of(self, log_proba: Tensor, targets: Tensor) -> Tensor:
        """The same for what the model said of rows, (rows, classes)."""
        margin = class_margin(log_proba, targets) - SAFELY
        if self.least <= 0:
            return margin
        wanted = log_proba.gather(1, targets[:, None])[:, 0]
        return torch.minimum(margin, wanted - math.log(self.least))
