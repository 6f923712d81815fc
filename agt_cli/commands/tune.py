"""agt tune: settings chosen on public rows, by folds, as an experiment file; or privately, with the chosen weights."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from agt.data.dataset import PublicRows
from agt.errors import ConfigError
from agt.mechanisms.weights import weights_budget
from agt.settings import validate
from agt.tuning import SCORES, Candidate, best, standard_error
from agt_cli.report.console import Console, show
from agt_cli.report.record import RunRecord
from agt_cli.report.tune_md import tune_report
from agt_cli.runs.choices import bound
from agt_cli.runs.experiment import chosen_options, free_path, write_experiment
from agt_cli.runs.mechanisms import TotalConfig
from agt_cli.runs.prepare import settings_of
from agt_cli.runs.private_tuning import PrivateTuning
from agt_cli.runs.tuning import Choice, TuneConfig, TuningData, choices

OWN = ("tune", "total")
USUAL = 1.0  # eps of the release that a score is about, where none is given


@dataclass(frozen=True)
class PublicTuning:
    """A choice among candidates on public rows.

    Attributes:
        tune: what is compared, by what.
        total: the budget of the released weights that one score is about.
        choices: the candidates.
        path: where the experiment goes.
    """

    tune: TuneConfig
    total: TotalConfig
    choices: Sequence[Choice]
    path: Path

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Score every candidate, choose, and write the experiment."""
        data = TuningData(self.tune.public, console)
        tried = [choice for choice in self.choices if self.tune.grid or data.able(choice)]
        scores = _scores(self, tried, data, console)
        at = best(scores, self.tune.objective)
        choice, about = tried[at], data.declaration(tried[at])
        declared = {"chosen_on": "public", "chosen_from": asdict(about)}
        config = bound({**choice.config, "training": {**choice.config["training"], **declared}})
        write_experiment(self.path, config, f"chosen by agt tune on {data.words}, {self.tune.words}: {choice.words}")
        table = pd.DataFrame([_row(*pair) for pair in zip(tried, scores, strict=True)])
        record.environment(public_rows=about.rows, public_digest=about.digest)
        record.table("candidates", table)
        record.add_metrics(candidates=len(table), chosen=at, **{name: float(table[name][at]) for name in SCORES})
        record.report(tune_report(table, at, self.tune.words, data.words, self.path, record))
        _say(table, at, self, data, console)
        return {"metrics": record.metrics, "chosen": dict(choice.changes), "experiment": str(self.path)}


def configure(config: Mapping[str, Any]) -> PublicTuning | PrivateTuning:
    """Validate the settings of every candidate, before any data is read."""
    tune, total = validate(TuneConfig, config.get("tune"), "tune"), validate(TotalConfig, config.get("total"), "total")
    given = {key: value for key, value in config.items() if key not in OWN}
    public = tune.public or "train"
    landmarks = public if not tune.private and public in get_args(PublicRows) else None
    candidates = choices(given, tune.grid, exact=tune.private and tune.public is None, public=landmarks)
    path = free_path(tune.name or f"{chosen_options().get('dataset', 'data')}_tuned")
    if tune.private:
        if total.eps is None:
            raise ConfigError("total.eps: private tuning spends it: say how much, such as total.eps=1")
        return PrivateTuning(tune, total, Choice({}, given, settings_of(given)), candidates, path)
    return PublicTuning(tune, total, candidates, path)


def run(tuning: PublicTuning | PrivateTuning, record: RunRecord, console: Console) -> dict[str, Any]:
    """Choose, write the record and the experiment, and say it."""
    return tuning.run(record, console)


def _scores(tuning: PublicTuning, choices: Sequence[Choice], data: TuningData, console: Console) -> list[np.ndarray]:
    """Each candidate's [folds, 3]."""
    budget, scores = weights_budget(tuning.total.eps or USUAL, tuning.total.delta), []
    with console.progress("comparing settings", "candidate") as report:
        for done, choice in enumerate(choices, 1):
            candidate = Candidate.of(data.prepared(choice).dataset, choice.settings, data.rows(choice))
            scores.append(candidate.scores(tuning.tune.folds, tuning.tune.k, budget))
            report(done, len(choices), done, len(choices))
    return scores


def _row(choice: Choice, scores: np.ndarray) -> dict[str, Any]:
    values = dict(zip(SCORES, scores.T, strict=True))
    means = {name: float(column.mean()) for name, column in values.items()}
    return {"settings": choice.words, **means, **{f"{name}_se": standard_error(column) for name, column in values.items()}}


def _say(table: pd.DataFrame, at: int, tuning: PublicTuning, data: TuningData, console: Console) -> None:
    tune, total = tuning.tune, tuning.total
    shown = {
        "accuracy": "accuracy",
        "certified": f"right, k >= {tune.k}",
        "expected": f"released, eps {total.eps or USUAL:g}",
    }
    console.table(
        f"{tune.folds} folds of {data.words}: mean +- standard error",
        ("", "settings", *shown.values()),
        [
            ("*" if i == at else "", row["settings"], *(f"{show(row[n])} +- {show(row[f'{n}_se'])}" for n in SCORES))
            for i, row in table.iterrows()
        ],
    )
    if not table[tune.objective].max():
        console.say(f"no candidate is right and certified at {tune.k} anywhere: give tune.k a smaller distance")
    console.say(f"chosen (*), {tune.words}: {table['settings'][at]}")
    console.say(f"experiment: {tuning.path}")
    console.note(f"it declares that its settings were chosen on {data.words}, declared public: whoever uses it says so too")
    console.note(f"next: agt train experiment={tuning.path.stem}")
