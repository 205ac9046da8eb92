"""Pictures as arrays, and the colours in them."""

from pathlib import Path

import numpy as np
from PIL import Image


def pixels(path: Path) -> np.ndarray:
    """The picture in red, green and blue: (height, width, 3), whole numbers up to 255."""
    with Image.open(path) as image:
        return np.array(image.convert("RGB")).astype(int)


def nearest(image: np.ndarray, colour: np.ndarray) -> float:
    """How far the most similar pixel is from a colour, in the channel that differs most."""
    return np.abs(image - np.round(255 * colour)).max(2).min()
