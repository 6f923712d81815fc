"""Small files in the formats that the data room reads, and the real ones where they are at hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import quick_commands  # noqa: F401


def medmnist_arrays(
    sizes: dict[str, int], classes: int, side: int = 28, channels: int = 1
) -> dict[str, np.ndarray]:
    """Random images in MedMNIST's layout, whose brightness says which class they are."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in sizes.items():
        labels = np.arange(n) % classes
        shape = (n, side, side) if channels == 1 else (n, side, side, channels)
        noise = rng.integers(0, 60, size=shape)
        arrays[f"{split}_images"] = (
            noise + labels.reshape(-1, *[1] * (len(shape) - 1)) * 40
        ).astype(np.uint8)
        arrays[f"{split}_labels"] = labels.astype(np.uint8)[:, None]
    return arrays


@pytest.fixture
def medmnist_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes an npz in MedMNIST's format and returns its path."""

    def write(
        name: str = "octmnist.npz",
        train: int = 80,
        val: int = 8,
        test: int = 16,
        classes: int = 4,
        **options: int,
    ) -> Path:
        path = tmp_path / name
        np.savez(
            path, **medmnist_arrays({"train": train, "val": val, "test": test}, classes, **options)
        )
        return path

    return write
