"""GradCAM (Selvaraju 2017): where a convolutional network looks when it gives a class.

The maps of the last convolution, each weighted by the mean gradient of the class's score over it,
summed, cut at 0, and brought to the size of the picture.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from counterveil.errors import RequestError
from counterveil.schema import Pixels


def gradcam(model: nn.Module, points: Tensor, classes: Tensor, image: Pixels) -> Tensor:
    """Maps of shape (pictures, height, breadth), the highest value of each 1, or all 0.

    `points`: encoded pictures, one a row; `classes`: the number of the class asked for, for each.
    """
    convolutions = [each for each in model.modules() if isinstance(each, nn.Conv2d)]
    if not convolutions:
        raise RequestError("GradCAM needs a network with a convolution")
    seen: list[Tensor] = []

    def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_(True))
        return seen[-1]

    hook = convolutions[-1].register_forward_hook(keep)
    try:
        with torch.enable_grad():
            scores = model(points).gather(1, classes[:, None]).sum()
            (slope,) = torch.autograd.grad(scores, seen[0])
    finally:
        hook.remove()
    maps = (slope.mean(dim=(2, 3), keepdim=True) * seen[0].detach()).sum(dim=1).relu()
    size = (image.height, image.breadth)
    maps = nn.functional.interpolate(maps[:, None], size, mode="bilinear", align_corners=False)[
        :, 0
    ]
    return maps / maps.amax(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)
