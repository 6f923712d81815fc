"""The tables and notes of a membership audit."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from agt.audit.membership import Exposure, Reference, Rehearsal, fewest, spread_of
from agt.audit.shadows import Shadows
from agt_cli.audit.membership_findings import RATES
from agt_cli.audit.membership_target import Target

EXPOSED = "exposed_NOT_FOR_PUBLICATION"
BINS = (0, 1, 10, 50)
SIZES = (
    "shadow models are trained on about half of training and test records together, by the run's own settings with sizes "
    "(declared size, normaliser, n_max) brought to that half; what the recipe settles, it settles for that size"
)
COLUMNS = (
    f"tables/{EXPOSED}.csv: score_lira is ln of the likelihood ratio, of a model trained on more records than the shadow "
    "models were, and standard_error what their means leave open (asymptotic); shift: by how many standard deviations "
    "training on it raises a record's confidence, on average over pairs of shadow models, of which a fair coin says which "
    "one has it; p_shift: by chance that is at most so likely; p_of_all: times the number of training records, which all "
    "were looked at"
)


def attacks_table(target: Target, rehearsal: Rehearsal | None, confidence: float) -> pd.DataFrame:
    """A line for each attack on the run's own model; beside it the mean over shadow models as targets."""
    rows = []
    for name, roc in target.rocs.items():
        row: dict[str, Any] = {"attack": name, "AUC": roc.area}
        row |= dict(zip(("AUC_low", "AUC_high"), roc.area_limits(confidence), strict=True))
        for rate in RATES:
            point, at = roc.at(rate, confidence), f"TPR_at_{100 * rate:g}%_FPR"
            row |= {at: point.tpr, f"{at}_low": point.tpr_limits[0], f"{at}_high": point.tpr_limits[1]}
        if rehearsal is not None and name in rehearsal.scores:
            fixed = roc.beyond(rehearsal.threshold(name), confidence)
            low, high = fixed.advantage_limits
            row |= {"advantage": fixed.advantage, "advantage_low": low, "advantage_high": high}
            row["balanced_accuracy"] = (1 + fixed.advantage) / 2
            row["AUC_on_halves"] = spread_of(each.area for each in rehearsal.rocs(name))[0]
        rows.append(row)
    return pd.DataFrame(rows).round(5)


def split_table(target: Target, confidence: float) -> pd.DataFrame:
    """A line for each bin of stable distances and each attack."""
    spans = [(low, high - 1) for low, high in pairwise([*BINS, np.inf])]
    rows = []
    for low, high in [*spans, (1, np.inf)]:
        here = (target.distance >= low) & (target.distance <= high)
        words = f"{low}" if low == high else f"{low} or more" if high == np.inf else f"{low} to {high}"
        counts = {"members": int(target.pool.member[here].sum()), "others": int((~target.pool.member[here]).sum())}
        for name in target.scores:
            row: dict[str, Any] = {"stable_distance": words, "attack": name, **counts}
            if all(counts.values()):
                roc = target.roc(name, here)
                row |= {"AUC": roc.area, **dict(zip(("AUC_low", "AUC_high"), roc.area_limits(confidence), strict=True))}
                row["TPR_at_1%_FPR"] = roc.at(RATES[1], confidence).tpr
            rows.append(row)
    return pd.DataFrame(rows).round(5)


def exposed_table(target: Target, reference: Reference | None, rehearsal: Rehearsal | None) -> pd.DataFrame:
    """Training records, the most exposed first."""
    records, member, classes = target.pool.records, target.pool.member, target.opened.dataset.classes
    table = pd.DataFrame({"id": records.ids, "unit": records.units, "label": [classes[y] for y in records.labels]})
    table["stable_distance"] = target.distance
    alone = reference is None or rehearsal is None or len(reference.pairs.phi) < 4
    by = "score_loss" if alone else "score_lira"
    if reference is None or rehearsal is None or alone:
        table[by] = target.scores["loss"]
    else:
        found = Exposure.of(target.phi, reference, member)
        table[by], table["standard_error"] = found.score, found.error
        table["shift"], table["shift_error"] = found.shift, found.shift_error
        table["p_shift"], table["p_of_all"] = found.chance, found.adjusted
        table[f"guessed_right_of_{len(rehearsal.included)}"] = rehearsal.right("lira_online")
    shown = table[member].sort_values(by, ascending=False, kind="stable")
    return shown.map(lambda cell: float(f"{cell:.4g}") if isinstance(cell, float) else cell)


def notes(target: Target, shadows: Shadows | None, rehearsal: Rehearsal | None) -> Iterator[str]:
    """What a reader must know beside the findings."""
    yield f"the attack by labels alone was given {target.how}, each query asked once"
    member = target.pool.member
    few = fewest(RATES[0], int((~member).sum()))
    if few and target.two_sided:
        yield f"at {100 * RATES[0]:g} % false alarms only thresholds without any false alarm count: {few}"
    if target.two_sided:
        yield _alike(target)
    if shadows is None:
        return
    yield SIZES
    if shadows.failed:
        number, why = shadows.failed[0]
        yield f"{len(shadows.failed)} shadow models failed and were left out; the first, number {number}: {why}"
    if rehearsal is not None:
        yield COLUMNS


def _alike(target: Target) -> str:
    """What else tells training records from test records."""
    return (
        "members are training records, non-members test records: where the two differ in anything else, scores tell that, "
        f"too (shares of classes differ by up to {100 * target.unlike:.1f} points); the halves of "
        "shadow models do not differ"
    )
