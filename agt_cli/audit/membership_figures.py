"""The curves of membership inference, both rates in log scale: what counts is who is found at few false alarms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from agt.audit.membership import Rehearsal
from agt.audit.roc import Roc
from agt_cli.report.figures import WIDTH, drawing, headline, keys
from agt_cli.report.record import RunRecord

POINTS = 300
LEAST, WIDEST = 1e-4, 0.5  # share of false alarms that is drawn; an axis begins no later
LOOKS: dict[str, dict[str, Any]] = {
    "loss": {"color": "0.45", "linewidth": 3},
    "lira_online": {"color": "#d94801", "linewidth": 1.8},
    "lira_offline": {"color": "#2171b5", "linewidth": 1.4, "linestyle": "--"},
    "rmia": {"color": "#238b45", "linewidth": 1.4, "linestyle": "-."},
    "labels": {"color": "black", "linewidth": 1.2, "linestyle": ":"},
}


def rocs_drawn(record: RunRecord, dataset: str, target: Mapping[str, Roc], rehearsal: Rehearsal | None) -> dict[str, str]:
    """Draw what there is; captions by name."""
    captions = dict[str, str]()
    if target:
        caption = "The run's own model: training records against test records."
        captions |= _drawn(record, "roc", target, "of the training records are found", f"{dataset}: {caption}")
    if rehearsal is not None:
        pooled = {name: Roc(rows.ravel(), rehearsal.included.ravel()) for name, rows in rehearsal.scores.items()}
        caption = f"{len(rehearsal.included)} models on half of the records, each the target in turn, at one threshold."
        captions |= _drawn(record, "roc_halves", pooled, "of the members are found", f"{dataset}: {caption}")
    return captions


def _drawn(record: RunRecord, name: str, rocs: Mapping[str, Roc], found: str, about: str) -> dict[str, str]:
    others = int((~next(iter(rocs.values())).member).sum())
    rates = np.geomspace(min(max(1 / others, LEAST), WIDEST), 1, POINTS)
    data = pd.DataFrame({"FPR": rates, **{attack: _shares(roc, rates) for attack, roc in rocs.items()}})
    best = max(rocs, key=lambda attack: rocs[attack].at(0.01, 0.95).tpr)
    with drawing(record, name, data, (WIDTH, 4.6)) as figure:
        axes = figure.subplots()
        axes.plot(rates, rates, color="0.8", linewidth=1, label="guessing")
        for attack in rocs:
            seen = data[attack] > 0
            axes.step(rates[seen], data[attack][seen], where="post", label=attack, **LOOKS[attack])
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="false alarms: share of non-members called members",
            ylabel="share of members found",
        )
        axes.set(xlim=(rates[0], 1), ylim=(_floor(data, list(rocs)), 1))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda share, place: f"{100 * share:g} %"))
        keys(figure, [axes])
        rate = rocs[best].at(0.01, 0.95)
        headline(figure, f"At {100 * rate.fpr:.2g} % false alarms, {100 * rate.tpr:.2g} % {found} ({best})", about)
    return {name: about}


def _shares(roc: Roc, rates: np.ndarray) -> np.ndarray:
    """[len(rates)] the share of members found with at most such a share of false alarms."""
    members, others = int(roc.member.sum()), int((~roc.member).sum())
    place = np.searchsorted(roc.curve[:, 1] / others, rates * (1 + 1e-12), side="right") - 1
    shares: np.ndarray = roc.curve[place, 2] / members
    return shares


def _floor(data: pd.DataFrame, attacks: Sequence[str]) -> float:
    """Where the axis begins: at the least share that is drawn."""
    values = data[["FPR", *attacks]].to_numpy()
    return min(float(values[values > 0].min()), WIDEST)
