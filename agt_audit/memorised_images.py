"""The figure of the most memorised training records, if these are images."""

import math

import numpy as np
import pandas as pd

from agt.data.dataset import Dataset
from agt_cli.report.figures import saved_figure
from agt_cli.report.record import RunRecord

FIGURE = "most_memorised_NOT_FOR_PUBLICATION"
SHOWN_IMAGES = 16
IMAGES_ACROSS = 8


def image_side(dataset: Dataset) -> int | None:
    """Return the height, which is the width, of a dataset's images; None if it has no images.

    Features are taken for an image if the dataset's source divides them by a constant, which only
    sources of images do, and if their number is a square.
    """
    pixels = dataset.train.features[:1].reshape(-1)
    side = math.isqrt(len(pixels))
    if "divisor" not in dataset.scaling or side**2 != len(pixels):
        return None
    return side


def draw_most_memorised(
    record: RunRecord, dataset: Dataset, features: np.ndarray, values: np.ndarray
) -> dict[str, str]:
    """Draw the ``SHOWN_IMAGES`` most memorised images, dark on white.

    Args:
        record: the run folder into which the figure is drawn.
        dataset: the dataset of the records.
        features: [n, pixels] the records' features.
        values: [n] estimated memorisation of each record; records without a finite value are
            left out.

    Returns:
        The figure's name -> its caption; empty if none is drawn, because the features are no
        images, or no value is finite.
    """
    side = image_side(dataset)
    finite_rows = np.flatnonzero(np.isfinite(values))
    largest_first = finite_rows[np.argsort(-values[finite_rows], kind="stable")]
    shown_rows = largest_first[:SHOWN_IMAGES]
    if side is None or not len(shown_rows):
        return {}
    lines = math.ceil(len(shown_rows) / IMAGES_ACROSS)
    images = np.asarray(features[shown_rows], dtype=np.float64).reshape(-1, side, side)
    shown_values = values[shown_rows]
    data = pd.DataFrame({"memorisation": shown_values})
    with saved_figure(record, FIGURE, data, (0.72 * IMAGES_ACROSS, 1.05 * lines)) as figure:
        panels = figure.subplots(lines, IMAGES_ACROSS, squeeze=False).ravel()
        for panel in panels:
            panel.set_axis_off()
        # the last line may have more panels than images
        for panel, image, value in zip(panels, images, shown_values, strict=False):
            panel.imshow(image, cmap="Greys", interpolation="nearest")
            panel.set_title(f"{value:.2f}", fontsize=8, y=-0.3, loc="center")
    return {
        FIGURE: (
            f"The {len(shown_rows)} training images of {dataset.name} with the largest estimated "
            "memorisation, which is the number below each. They are private records."
        )
    }
