"""agt tune: settings chosen on public rows, by folds, as an experiment file; or privately, with the chosen weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agt.mechanisms.weights import weights_budget
from agt.settings import validate
from agt.tuning import SCORES, Candidate, best, standard_error
from agt_cli.report.console import Console, show
from agt_cli.report.record import RunRecord
from agt_cli.report.tune_md import tune_report
from agt_cli.runs.choices import bound
from agt_cli.runs.experiment import chosen_options, free_path, write_experiment
from agt_cli.runs.mechanisms import TotalConfig
from agt_cli.runs.tuning import Choice, PublicData, TuneConfig, choices

OWN = ("tune", "total", "seed")


@dataclass(frozen=True)
class Tuning:
    """What is to be done.

    Attributes:
        tune: what is compared, by what.
        total: the budget of released weights.
        choices: the candidates.
        path: where the experiment goes.
    """

    tune: TuneConfig
    total: TotalConfig
    choices: list[Choice]
    path: Path


def configure(config: Mapping[str, Any]) -> Tuning:
    """Validate the settings of every candidate, before any data is read."""
    tune, total = validate(TuneConfig, config.get("tune"), "tune"), validate(TotalConfig, config.get("total"), "total")
    candidates = choices({key: value for key, value in config.items() if key not in OWN}, tune.grid)
    path = free_path(tune.name or f"{chosen_options().get('dataset', 'data')}_tuned")
    return Tuning(tune, total, candidates, path)


def run(tuning: Tuning, record: RunRecord, console: Console) -> dict[str, Any]:
    """Score every candidate, choose, and write the experiment."""
    tune, data = tuning.tune, PublicData(tuning.tune.public, console)
    scores = _scores(tuning, data, console)
    at = best(scores, tune.objective)
    choice, about = tuning.choices[at], data.declaration(tuning.choices[at])
    declared = {"chosen_on": "public", "chosen_from": {"rows": about.rows, "digest": about.digest}}
    config = bound({**choice.config, "training": {**choice.config["training"], **declared}})
    write_experiment(tuning.path, config, f"chosen by agt tune, {tune.words} on {data.words}: {choice.words}")

    table = pd.DataFrame([_row(*pair) for pair in zip(tuning.choices, scores, strict=True)])
    record.environment(public_rows=about.rows, public_digest=about.digest)
    record.table("candidates", table)
    record.add_metrics(candidates=len(table), chosen=at, **{name: float(table[name][at]) for name in SCORES})
    record.write("report.md", tune_report(table, at, tune.words, data.words, tuning.path, record).encode())
    _say(table, at, tuning, data, console)
    return {"metrics": record.metrics, "chosen": dict(choice.changes), "experiment": str(tuning.path)}


def _scores(tuning: Tuning, data: PublicData, console: Console) -> list[np.ndarray]:
    """Each candidate's [folds, 3]."""
    budget, scores = weights_budget(tuning.total.eps or 1.0, tuning.total.delta), []
    with console.progress("comparing settings", "candidate") as report:
        for done, choice in enumerate(tuning.choices, 1):
            candidate = Candidate.of(data.prepared(choice).dataset, choice.settings, data.rows(choice))
            scores.append(candidate.scores(tuning.tune.folds, tuning.tune.k, budget))
            report(done, len(tuning.choices), done, len(tuning.choices))
    return scores


def _row(choice: Choice, scores: np.ndarray) -> dict[str, Any]:
    values = dict(zip(SCORES, scores.T, strict=True))
    means = {name: float(column.mean()) for name, column in values.items()}
    return {"settings": choice.words, **means, **{f"{name}_se": standard_error(column) for name, column in values.items()}}


def _say(table: pd.DataFrame, at: int, tuning: Tuning, data: PublicData, console: Console) -> None:
    tune, total = tuning.tune, tuning.total
    shown = {"accuracy": "accuracy", "certified": f"right, k >= {tune.k}", "expected": f"released, eps {total.eps:g}"}
    console.table(
        f"{tune.folds} folds of {data.words}: mean +- standard error",
        ("", "settings", *shown.values()),
        [
            ("*" if i == at else "", row["settings"], *(f"{show(row[n])} +- {show(row[f'{n}_se'])}" for n in SCORES))
            for i, row in table.iterrows()
        ],
    )
    console.say(f"chosen (*), {tune.words}: {table['settings'][at]}")
    console.say(f"experiment: {tuning.path}")
    console.note(f"it declares that its settings were chosen on {data.words}, declared public: whoever uses it says so too")
    console.note(f"next: agt train experiment={tuning.path.stem}")
