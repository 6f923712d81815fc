"""How well attacks tell members of each class from non-members of it, as a picture."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from agt_audit.roc import Roc
from agt_cli.report.figures import WIDTH, drawing, keys
from agt_cli.report.record import RunRecord

MOST_CLASSES = 30  # that one picture can name


def advantages_by_class(
    rocs: Mapping[str, Roc], labels: np.ndarray, classes: Sequence[str]
) -> pd.DataFrame:
    """Return each attack's TPR - FPR on the records of each class.

    An attack has one threshold for all classes, the best one for all records.

    Args:
        rocs: name of an attack -> its scores of n records.
        labels: [n] indices of classes.
        classes: their names; one without both members and non-members has no row.

    Returns:
        The columns class, attack, members, others and advantage.
    """
    rows = []
    for attack, roc in rocs.items():
        called = roc.scores >= roc.best
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
                    "advantage": float(called[members].mean() - called[others].mean()),
                }
            )
    return pd.DataFrame(rows)


def draw_advantage_by_class(
    record: RunRecord,
    rocs: Mapping[str, Roc],
    labels: np.ndarray,
    classes: Sequence[str],
    looks: Mapping[str, tuple[str, str]],
) -> dict[str, str]:
    """Draw a bar for each class and attack; return the caption by its name, or nothing.

    Args:
        record: into which it is drawn.
        rocs: as for ``advantages_by_class``, on the run's own model; also labels and classes.
        looks: an attack -> its name and its colour in the picture.
    """
    data = advantages_by_class(rocs, labels, classes)
    if data.empty or data["class"].nunique() > MOST_CLASSES:
        return {}
    names = list(data["class"].unique())
    thickness = 0.8 / data["attack"].nunique()
    with drawing(record, "by_class", data, (WIDTH, 1.4 + 0.5 * len(names))) as figure:
        axes = figure.subplots()
        for position, (attack, part) in enumerate(data.groupby("attack", sort=False)):
            name, colour = looks[str(attack)]
            heights = [names.index(one) + thickness * position for one in part["class"]]
            axes.barh(heights, part["advantage"], 0.9 * thickness, color=colour, label=name)
        middle = 0.4 - thickness / 2
        axes.set_yticks(np.arange(len(names)) + middle, names)
        axes.invert_yaxis()
        axes.axvline(0, color="black", linewidth=0.7)
        axes.set(ylabel="class", xlabel="advantage of the attack (TPR - FPR)")
        keys(figure, [axes])
    return {
        "by_class": (
            "Advantage of each attack on the run's own model by class, at the threshold that is "
            "best for all records."
        )
    }
