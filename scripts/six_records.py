"""Draw docs/six_records.png, the first figure of docs/method.md.

    python scripts/six_records.py [FILE]

writes the figure into FILE (default: docs/six_records.png). It shows the bounds of the logit over
the line for k = 0 to 3, the six people and the three queries of that page.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
# The boxes that the example of agt/README.md trains, for k = 0 to 3.
WEIGHT_BOUNDS = [(1.257, 1.257), (0.738, 1.810), (0.263, 2.333), (-0.171, 2.751)]
BIAS_BOUND = [0.0, 0.585, 1.074, 1.474]  # the bias lies between minus and plus this number
SHADES = ["#08306b", "#2171b5", "#6baed6", "#c6dbef"]
PEOPLE = [-1.0, -0.8, -0.6, 0.6, 0.8, 1.0]
CLASSES = [0, 0, 0, 1, 1, 1]
QUERIES = (-0.9, 0.1, 0.9)


def draw(output: Path) -> None:
    """Write the figure into a file."""
    line = np.linspace(-1.3, 1.3, 261)
    figure, axes = plt.subplots(figsize=(7, 3.6))
    for k in (3, 2, 1, 0):
        weights = WEIGHT_BOUNDS[k]
        ends = np.sort([weights[0] * line, weights[1] * line], axis=0)
        lower = ends[0] - BIAS_BOUND[k]
        upper = ends[1] + BIAS_BOUND[k]
        axes.fill_between(line, lower, upper, color=SHADES[k], linewidth=1.5, label=f"k = {k}")
    for query in QUERIES:
        axes.axvline(query, color="black", linestyle=":", linewidth=1)
    axes.axhline(0, color="black", linewidth=1)
    heights = [0] * len(PEOPLE)
    axes.scatter(PEOPLE, heights, c=CLASSES, cmap="coolwarm", edgecolors="white", zorder=3)
    axes.set(xlabel="x", ylabel="logit (class 1 above 0)", xlim=(-1.3, 1.3), ylim=(-4, 4))
    axes.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(output, dpi=80)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "six_records.png")
