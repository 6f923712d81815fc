"""Small images in rows, each with a number below it: how records themselves are shown."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agt_cli.report.figures import drawing, headline
from agt_cli.report.record import RunRecord


@dataclass(frozen=True)
class Pictures:
    """What one figure shows; columns p0, p1, ... hold the pixels of square images.

    Attributes:
        rows: of the rows of images, titled by its values; ``order``: of the images in one.
        value: a number for each image; ``words``: what it is.
        name, title, finding: as of ``Curves``.
    """

    rows: str
    order: str
    value: str
    words: str
    name: str = ""
    title: str = ""
    finding: str = ""


def pictures(record: RunRecord, what: Pictures, data: pd.DataFrame) -> None:
    """Draw ``data``'s images, dark on white."""
    titles = list(data[what.rows].unique())
    parts = [data[data[what.rows] == title].sort_values(what.order) for title in titles]
    pixels = [column for column in map(str, data) if column[:1] == "p" and column[1:].isdigit()]
    side, across = math.isqrt(len(pixels)), max(map(len, parts))
    with drawing(record, what.name, data, (0.72 * across + 0.8, 1.15 * len(parts) + 0.7)) as figure:
        places = figure.subplots(len(parts), across, squeeze=False)
        for axes in places.ravel():
            axes.set_axis_off()
        for line, title, part in zip(places, titles, parts, strict=True):
            for axes, row in zip(line, part.to_dict("records"), strict=False):
                image = np.array([row[pixel] for pixel in pixels], dtype=float).reshape(side, side)
                axes.imshow(image, cmap="Greys", interpolation="nearest")
                axes.set_title(f"{row[what.value]:.2g}", fontsize=8, y=-0.32, loc="center")
            line[0].text(-0.15, 0.5, str(title), transform=line[0].transAxes, rotation=90, va="center", ha="right")
        figure.supxlabel(what.words, fontsize=9)
        headline(figure, what.finding, what.title)
