"""The figure of each attack's advantage on members and non-members of each class."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from agt_audit.roc import Roc
from agt_cli.report.figures import WIDTH, draw_legend, saved_figure
from agt_cli.report.record import RunRecord

MAX_CLASSES = 30  # of a figure; with more, none is drawn


def advantages_by_class(
    rocs: Mapping[str, Roc], labels: np.ndarray, classes: Sequence[str]
) -> pd.DataFrame:
    """Return a table of each attack's advantage, TPR - FPR, on the records of each class.

    An attack uses one threshold for all classes: that with the largest advantage on all records.

    Args:
        rocs: name of an attack -> its scores of the same n records.
        labels: [n] indices of classes.
        classes: the names of the classes.

    Returns:
        A table with the columns class, attack, members, others and advantage. It has no row for
        a class without members or without non-members.
    """
    rows = []
    for attack, roc in rocs.items():
        is_called_member = roc.scores >= roc.best
        for label, name in enumerate(classes):
            members = (labels == label) & roc.member
            others = (labels == label) & ~roc.member
            if not members.any() or not others.any():
                continue
            rows.append(
                {
                    "class": name,
                    "attack": attack,
                    "members": int(members.sum()),
                    "others": int(others.sum()),
                    "advantage": float(
                        is_called_member[members].mean() - is_called_member[others].mean()
                    ),
                }
            )
    return pd.DataFrame(rows)


def draw_advantage_by_class(
    record: RunRecord,
    rocs: Mapping[str, Roc],
    labels: np.ndarray,
    classes: Sequence[str],
    legend: Mapping[str, tuple[str, str]],
) -> dict[str, str]:
    """Draw a bar for the advantage of each attack on each class.

    Args:
        record: the run folder into which the figure is drawn.
        rocs: name of an attack -> its scores of the same n records by the run's own model.
        labels: [n] indices of classes.
        classes: the names of the classes.
        legend: name of an attack -> its title and its colour in the figure.

    Returns:
        The figure's name -> its caption; empty if none is drawn, because no class has both
        members and non-members, or more than ``MAX_CLASSES`` do.
    """
    data = advantages_by_class(rocs, labels, classes)
    if data.empty or data["class"].nunique() > MAX_CLASSES:
        return {}
    names = list(data["class"].unique())
    thickness = 0.8 / data["attack"].nunique()
    with saved_figure(record, "by_class", data, (WIDTH, 1.4 + 0.5 * len(names))) as figure:
        axes = figure.subplots()
        for position, (attack, part) in enumerate(data.groupby("attack", sort=False)):
            title, colour = legend[str(attack)]
            heights = [names.index(name) + thickness * position for name in part["class"]]
            axes.barh(heights, part["advantage"], 0.9 * thickness, color=colour, label=title)
        middle = 0.4 - thickness / 2
        axes.set_yticks(np.arange(len(names)) + middle, names)
        axes.invert_yaxis()
        axes.axvline(0, color="black", linewidth=0.7)
        axes.set(ylabel="class", xlabel="advantage of the attack (TPR - FPR)")
        draw_legend(figure, [axes])
    return {
        "by_class": (
            "Advantage of each attack on the run's own model by class, at the threshold that is "
            "best for all records."
        )
    }
