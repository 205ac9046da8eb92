"""Pictures as features: URLB's convolutional encoder, and the random shift that pictures get in updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from agent.parts.draws import Draws
from utils import Natural, Size


@dataclass(frozen=True, kw_only=True)
class PixelSettings:
    """channels: of every convolution. feature_dim: what the trunks of actor and critic make of the
    encoder's features. shift: pixels by which pictures move at most, either way, in updates.
    critic_encoder: the critic's loss teaches the encoder. update_encoder: the objective's losses do,
    in pre-training."""

    channels: Size
    feature_dim: Size
    shift: Natural
    critic_encoder: bool
    update_encoder: bool


class Images(NamedTuple):
    """What an encoder is made for."""

    shape: tuple[int, int, int]  # channels, rows, columns of a picture
    channels: int  # of the convolutions

    @property
    def features(self) -> int:
        """How many numbers an encoder makes of a picture: 32 x 35 x 35 of URLB's 9 x 84 x 84."""
        rows, columns = (((side - 3) // 2 + 1) - 6 for side in self.shape[1:])
        return self.channels * rows * columns


class Encoder(nn.Module):
    """Four convolutions of 3 x 3, the first of stride 2, with a ReLU after each (the paper's appendix,
    URLB); orthogonal weights of a ReLU's gain, zero biases."""

    def __init__(self, images: Images):
        super().__init__()
        self.images = images
        layers: list[nn.Module] = []
        width = images.shape[0]
        for stride in (2, 1, 1, 1):
            layers += [nn.Conv2d(width, images.channels, 3, stride), nn.ReLU()]
            width = images.channels
        self.convolutions = nn.Sequential(*layers)
        for name, parameter in self.convolutions.named_parameters():
            if name.endswith("weight"):
                nn.init.orthogonal_(parameter, nn.init.calculate_gain("relu"))
            else:
                nn.init.zeros_(parameter)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures (B, channels, rows, columns) of 0 to 255: features (B, n)."""
        return self.of_scaled(pictures.float() / 255 - 0.5)

    def of_scaled(self, pictures: Tensor) -> Tensor:
        """Of pictures whose numbers are already where convolutions like them."""
        if pictures.device.type == "cuda":  # the layout that its kernels are made for
            pictures = pictures.contiguous(memory_format=torch.channels_last)
        return self.convolutions(pictures).flatten(1)

    @torch.no_grad()
    def see(self, pictures: Tensor) -> Tensor:
        """Features of one picture (n,) or of several (N, n), without a gradient."""
        return self(pictures) if pictures.ndim == 4 else self(pictures.unsqueeze(0))[0]


class ScaledEncoder(Encoder):
    """An encoder of pictures that something else has scaled."""

    def forward(self, pictures: Tensor) -> Tensor:
        return self.of_scaled(pictures)


def random_shift(pictures: Tensor, most: int, draws: Draws) -> Tensor:
    """Each picture moved by whole pixels, up to `most` either way along both axes; what comes in at
    a border repeats the border (DrQ's augmentation)."""
    if most == 0:
        return pictures
    count, channels, rows, columns = pictures.shape
    by = draws.integers(2 * most + 1, 2, count, 1) - most  # (2, B, 1)
    device = pictures.device
    y = (torch.arange(rows, device=device) + by[0]).clamp(0, rows - 1)  # (B, rows)
    x = (torch.arange(columns, device=device) + by[1]).clamp(0, columns - 1)
    at = (y.unsqueeze(2) * columns + x.unsqueeze(1)).flatten(1)  # (B, rows * columns)
    at = at.unsqueeze(1).expand(count, channels, rows * columns)
    return pictures.flatten(2).gather(2, at).view_as(pictures)
