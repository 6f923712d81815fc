"""The picture of the most memorised records, where the records are images."""

import math

import numpy as np
import pandas as pd

from agt.data.dataset import Dataset
from agt_cli.report.figures import drawing
from agt_cli.report.record import RunRecord

FIGURE = "most_memorised_NOT_FOR_PUBLICATION"
SHOWN_IMAGES = 16
IMAGES_ACROSS = 8


def image_side(dataset: Dataset) -> int | None:
    """Return the height and width of the images that a dataset's features are.

    None if they are something else. Only sources of images divide pixels by a constant.
    """
    pixels = dataset.train.features[:1].reshape(-1)
    side = math.isqrt(len(pixels))
    if "divisor" not in dataset.scaling or side**2 != len(pixels):
        return None
    return side


def draw_most_memorised(
    record: RunRecord, dataset: Dataset, features: np.ndarray, values: np.ndarray
) -> dict[str, str]:
    """Draw the most memorised images, dark on white; return the caption by its name.

    Args:
        record: into which it is drawn.
        dataset: that the records are of; nothing is drawn unless its features are images.
        features: [n, pixels] of the records.
        values: [n] estimated memorisation of each record; NaN is left out.
    """
    side = image_side(dataset)
    known = np.flatnonzero(np.isfinite(values))
    most = known[np.argsort(-values[known], kind="stable")][:SHOWN_IMAGES]
    if side is None or not len(most):
        return {}
    rows = math.ceil(len(most) / IMAGES_ACROSS)
    images = np.asarray(features[most], dtype=np.float64).reshape(-1, side, side)
    data = pd.DataFrame({"memorisation": values[most]})
    with drawing(record, FIGURE, data, (0.72 * IMAGES_ACROSS, 1.05 * rows)) as figure:
        places = figure.subplots(rows, IMAGES_ACROSS, squeeze=False).ravel()
        for place in places:
            place.set_axis_off()
        for place, image, value in zip(places, images, values[most], strict=False):
            place.imshow(image, cmap="Greys", interpolation="nearest")
            place.set_title(f"{value:.2f}", fontsize=8, y=-0.3, loc="center")
    return {
        FIGURE: (
            f"The {len(most)} training images of {dataset.name} with the largest estimated "
            "memorisation, which is the number below each. They are private records."
        )
    }
