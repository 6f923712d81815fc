"""Records dealt out by a public hash, so that some choose settings and others report; runs that a fold was left out of."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from agt.data.ids import keyed_hash
from agt_cli.papers.reproduction.answers import answers
from agt_cli.papers.reproduction.runs import Runs
from agt_cli.runs.model import fit
from agt_cli.runs.prepare import Prepared, RunSettings

KEY = "halves"  # public key of the hash


def dealt(units: np.ndarray, parts: int) -> np.ndarray:
    """[n] the part, 0 to parts - 1, that each unit's rows belong to, whichever other rows there are."""
    return (((keyed_hash(units, KEY) >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)).astype(np.int64)


def left_out(runs: Runs, overrides: Sequence[str], label: str, fold: int, folds: int) -> tuple[pd.DataFrame, list[int]]:
    """What the run of these overrides, without one fold of its training records, answers about that fold.

    Returns:
        ``Finished.frame`` and ``Finished.ks``.
    """

    def make(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
        dataset = prepared.dataset
        part = dealt(dataset.train.units, folds)
        size = dataset.declared_size and dataset.declared_size * (1 - 1 / folds)
        fewer = replace(
            dataset,
            train=dataset.train.take(part != fold),
            test=dataset.train.take(part == fold),
            declared_size=size,
            plane=None,
        )
        model = fit(replace(prepared, dataset=fewer), settings, runs.console)
        frame, ks = answers(model, fewer.test.features, prepared, fewer.test.labels, runs.console)
        return frame, {"ks": ks}

    frame, facts = runs.once(overrides, label, make, f"fold {fold} of {folds}", modules=(__name__,))
    return frame, list(facts["ks"])
