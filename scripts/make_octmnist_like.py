"""MNIST's test digits in the format of octmnist.npz, for trying the path of OCT-MNIST without it.

    python scripts/make_octmnist_like.py mnist_t10k.npz data

writes data/octmnist_like.npz. Digits stand for OCT-MNIST's classes, in about its proportions: 0
and 1 for choroidal neovascularization, 2 and 3 for diabetic macular edema, 4 for drusen, which the
base model never sees, and 5 to 9 for normal. No scan is in it, and no result on it says anything
about OCT-MNIST.
"""

import argparse
from pathlib import Path

import numpy as np

CLASS_OF_DIGIT = np.array([0, 0, 1, 1, 2, 3, 3, 3, 3, 3])
TEST_OF_A_CLASS = 250  # as in the official file


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("digits", type=Path, help="an npz with images [n, 28, 28] and labels [n]")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with np.load(given.digits) as digits:
        images = digits["images"]
        labels = CLASS_OF_DIGIT[digits["labels"]]
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[:TEST_OF_A_CLASS]] = True
    nobody = np.zeros(len(labels), dtype=bool)
    arrays = {}
    for split, chosen in {"train": ~test, "val": nobody, "test": test}.items():
        arrays[f"{split}_images"] = images[chosen]
        arrays[f"{split}_labels"] = labels[chosen, None].astype(np.uint8)
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / "octmnist_like.npz"
    np.savez(path, **arrays)
    print(f"{path} ({(~test).sum():,} records to train on, {test.sum():,} to test, made up)")


if __name__ == "__main__":
    main()
