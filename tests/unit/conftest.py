"""Small files in the formats that the data room reads, and the real ones where they are at hand."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import quick_commands  # noqa: F401

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """The path of a real data file; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        path = Path(os.environ.get("AGT_SHARED", ROOT.parent / "shared")) / "data" / name
        if not path.exists():
            pytest.skip(f"the real file {name} is not here")
        return path

    return find


def medmnist_arrays(sizes: dict[str, int], classes: int, side: int = 28, channels: int = 1) -> dict[str, np.ndarray]:
    """Random images in MedMNIST's layout, whose brightness says which class they are."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in sizes.items():
        labels = np.arange(n) % classes
        shape = (n, side, side) if channels == 1 else (n, side, side, channels)
        noise = rng.integers(0, 60, size=shape)
        arrays[f"{split}_images"] = (noise + labels.reshape(-1, *[1] * (len(shape) - 1)) * 40).astype(np.uint8)
        arrays[f"{split}_labels"] = labels.astype(np.uint8)[:, None]
    return arrays


@pytest.fixture
def medmnist_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes an npz in MedMNIST's format and returns its path."""

    def write(
        name: str = "octmnist.npz", train: int = 80, val: int = 8, test: int = 16, classes: int = 4, **options: int
    ) -> Path:
        path = tmp_path / name
        np.savez(path, **medmnist_arrays({"train": train, "val": val, "test": test}, classes, **options))
        return path

    return write
