"""Training steps of small networks: a GPU records them once, for launching each part takes long."""

from collections.abc import Callable

import torch
from torch import Tensor

WARM_STEPS = 3  # before a step is recorded


def adam(weights: list[Tensor], rate: float, device: torch.device) -> torch.optim.Adam:
    """Adam for stacked weights; on a GPU its steps can be recorded, and its rate is a tensor."""
    is_gpu = device.type == "cuda"
    lr = torch.tensor(rate, device=device) if is_gpu else rate
    for each in weights:
        each.grad = torch.zeros_like(each)
    return torch.optim.Adam(weights, lr, fused=True, capturable=is_gpu)


def set_rate(optimiser: torch.optim.Adam, rate: float) -> None:
    """Learn at this rate from the next step on."""
    (group,) = optimiser.param_groups
    known = group["lr"]
    group["lr"] = known.fill_(rate) if isinstance(known, Tensor) else rate


class Recorded:
    """A training step; on a GPU it is recorded for each shape of the tensors that it is given.

    `step` changes nothing but the weights of `optimiser`, their gradients and its state.
    """

    def __init__(
        self, step: Callable[..., None], optimiser: torch.optim.Adam, device: torch.device
    ) -> None:
        self._step, self._optimiser, self._device = step, optimiser, device
        self._recorded: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}

    def __call__(self, *given: Tensor) -> None:
        if self._device.type != "cuda":
            self._step(*given)
            return
        shapes = tuple(each.shape for each in given)
        if shapes not in self._recorded:
            self._recorded[shapes] = self._record(given)
        graph, places = self._recorded[shapes]
        for place, each in zip(places, given, strict=True):
            place.copy_(each)
        graph.replay()

    def _record(self, given: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        """A recorded step and the tensors that it reads; nothing is learnt."""
        places = [each.to(self._device, copy=True) for each in given]
        (group,) = self._optimiser.param_groups
        before = [weights.detach().clone() for weights in group["params"]]
        kept = {
            (place, name): value.clone()
            for place, weights in enumerate(group["params"])
            for name, value in self._optimiser.state[weights].items()
        }
        aside = torch.cuda.Stream(self._device)
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_STEPS):
                self._step(*places)
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(*places)
        with torch.no_grad():
            for place, weights in enumerate(group["params"]):
                weights.copy_(before[place])
                for name, value in self._optimiser.state[weights].items():
                    value.copy_(kept[place, name]) if (place, name) in kept else value.zero_()
        return graph, places
