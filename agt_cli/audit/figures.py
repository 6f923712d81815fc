"""What was claimed against what was found, as one picture."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from agt.audit.findings import LOWER, Finding
from agt_cli.audit.words import ABOUT, SIGNS, many
from agt_cli.report.figures import WIDTH, drawing, headline, keys
from agt_cli.report.record import RunRecord

NAME = "claimed_against_found"
LOOKS: dict[str, dict[str, Any]] = {
    "violated": {"marker": "^", "color": "#a3161c", "s": 46},
    "bound from below, not above its claim": {"marker": "o", "color": "#2c7fb8", "s": 30},
    "estimate, no confidence bound": {"marker": "o", "facecolors": "white", "edgecolors": "#2c7fb8", "s": 30},
}


def claimed_against_found(record: RunRecord, findings: Sequence[Finding], subject: str) -> dict[str, str]:
    """Each claimed epsilon or mu with what was found of it, where both are above 0; none: no figure.

    Returns:
        The figure's caption by its name.
    """
    losses = [each for each in findings if each.measure in LOWER and each.claimed and each.found is not None]
    above = [each for each in losses if each.found]
    if not above:
        return {}
    rows = [(each.subject, each.measure, each.claimed, each.found, _look(each)) for each in above]
    data = pd.DataFrame(rows, columns=["audited", "measure", "claimed", "found", "look"])
    low, high = float(data[["claimed", "found"]].min().min()), float(data[["claimed", "found"]].max().max())
    ends = (low / 2.5, high * 2.5)
    with drawing(record, NAME, data, (WIDTH, 4.2)) as figure:
        axes = figure.subplots()
        axes.plot(ends, ends, color="black", linewidth=0.8, linestyle="--", label="what is claimed")
        for look, style in LOOKS.items():
            here = data[data["look"] == look]
            if len(here):
                axes.scatter(here["claimed"], here["found"], label=look, zorder=3, **style)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="claimed (epsilon or mu)", ylabel="found")
        ticks = [step * 10.0**power for power in range(-9, 9) for step in (1, 2, 5)]
        shown = [tick for tick in ticks if ends[0] <= tick <= ends[1]]
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(shown, [f"{tick:g}" for tick in shown])
            axis.set_ticks([], minor=True)
        keys(figure, [axes])
        wrong, none = sum(each.violated for each in above), len(losses) - len(above)
        rest = f"; of {many(none, 'more claim')} nothing was found" if none else ""
        headline(figure, _finding(wrong), f"{subject}: {many(len(above), 'bound')} and estimates{rest}")
    return {NAME: "What attacks found, against what was claimed: a triangle above the line is a claim that is false."}


def _finding(wrong: int) -> str:
    if wrong:
        return f"{many(wrong, 'claim')} violated"
    return "No bound is above its claim: that is no proof"


def _look(finding: Finding) -> str:
    violated, bound, estimate = LOOKS
    return violated if finding.violated else estimate if SIGNS[finding.strength] == ABOUT else bound
