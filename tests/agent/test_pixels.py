"""The encoder's shapes, and the random shift beside a loop that moves pictures one by one."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from agent.parts.draws import Draws
from agent.parts.pixels import Encoder, Images, random_shift


class Given:
    """Draws that are known."""

    def __init__(self, *shifts):
        self.shifts = torch.tensor(shifts).T.unsqueeze(2)  # (2, B, 1)

    def integers(self, high, *shape):
        assert tuple(self.shifts.shape) == shape and self.shifts.max() < high
        return self.shifts


@pytest.mark.parametrize("size", [17, 18, 24, 48, 84])
def test_an_encoder_makes_as_many_features_as_it_says(size):
    images = Images((9, size, size), 4)
    pictures = torch.zeros(2, 9, size, size, dtype=torch.uint8)
    assert Encoder(images)(pictures).shape == (2, images.features)


def test_urlbs_pictures_become_32_times_35_times_35_features_by_four_convolutions():
    images = Images((9, 84, 84), 32)
    assert images.features == 32 * 35 * 35
    count = sum(p.numel() for p in Encoder(images).parameters())
    assert count == 32 * (9 * 9 + 1) + 3 * 32 * (32 * 9 + 1)


def test_features_are_the_convolutions_of_scaled_pictures():
    torch.manual_seed(0)
    encoder = Encoder(Images((3, 20, 20), 5))
    pictures = torch.randint(256, (2, 3, 20, 20), dtype=torch.uint8)
    x = pictures.double() / 255 - 0.5
    weights = list(encoder.double().parameters())
    for i, stride in enumerate((2, 1, 1, 1)):
        x = F.relu(F.conv2d(x, weights[2 * i], weights[2 * i + 1], stride))
    torch.testing.assert_close(encoder.of_scaled(pictures.double() / 255 - 0.5), x.flatten(1))
    torch.testing.assert_close(encoder.float().see(pictures), x.flatten(1).float())
    torch.testing.assert_close(encoder.see(pictures[0]), x.flatten(1)[0].float())


def test_weights_start_orthogonal_with_a_relus_gain_and_biases_at_zero():
    for convolution in Encoder(Images((9, 24, 24), 8)).convolutions[::2]:
        rows = convolution.weight.flatten(1)
        torch.testing.assert_close(rows @ rows.T, 2 * torch.eye(len(rows)), atol=1e-5, rtol=0)
        assert not convolution.bias.any()


# ---- the shift


def shifted_by_hand(picture: np.ndarray, down: int, right: int) -> np.ndarray:
    """A crop of the picture padded with its own border."""
    pad = max(abs(down), abs(right))
    wide = np.pad(picture, ((0, 0), (pad, pad), (pad, pad)), "edge")
    rows, columns = picture.shape[1:]
    return wide[:, pad + down : pad + down + rows, pad + right : pad + right + columns]


@pytest.mark.parametrize("shape", [(3, 7, 7), (6, 5, 9)])
def test_a_shift_is_a_crop_of_the_picture_padded_with_its_border(shape):
    rng = np.random.default_rng(0)
    shifts = [(int(a), int(b)) for a in range(5) for b in range(5)]
    pictures = rng.integers(256, size=(len(shifts), *shape)).astype(np.uint8)
    found = random_shift(torch.from_numpy(pictures), 2, Given(*shifts))
    assert found.dtype == torch.uint8
    for picture, ours, (a, b) in zip(pictures, found.numpy(), shifts, strict=True):
        np.testing.assert_array_equal(ours, shifted_by_hand(picture, a - 2, b - 2))


def test_the_frames_of_one_stack_move_together_and_every_picture_for_itself():
    draws = Draws(torch.Generator().manual_seed(0))
    one = torch.arange(81, dtype=torch.uint8).view(1, 1, 9, 9)
    found = random_shift(one.expand(500, 4, 9, 9).contiguous(), 2, draws)
    assert (found == found[:, :1]).all()
    corners = {tuple(map(int, divmod(int(each[0, 4, 4]), 9))) for each in found}
    assert corners == {(y, x) for y in range(2, 7) for x in range(2, 7)}  # all 25 shifts


def test_no_shift_leaves_pictures_and_generator_alone():
    draws = Draws(torch.Generator().manual_seed(0))
    before, pictures = draws.get_state(), torch.zeros(2, 3, 5, 5, dtype=torch.uint8)
    assert random_shift(pictures, 0, draws) is pictures and torch.equal(before, draws.get_state())
