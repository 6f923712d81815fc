"""Estimate, by cross-validation on public rows, what settings would give on the private records.

For each fold, the run's model is trained on the public rows of the other folds. Its normaliser B is
the number of these rows. So the mean gradient, and with it the model, is what the run would have
with its B private records, as far as both samples are alike. What the recipe computes from B is
computed from the run's own B. Stable distances and the noise of a release are the run's own as
well, because they follow from public constants.

Nothing here reads a private record: ``Candidate`` has public rows and constants only.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agt.certificates.stability import bound_norms
from agt.data.dataset import Dataset
from agt.data.ids import keyed_hash
from agt.data.records import Records
from agt.errors import ConfigError
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.weights import expected_accuracy, noise_scale
from agt.models.features import FeatureMap
from agt.models.linear import LinearModel
from agt.numeric import logits_of
from agt.problem import Problem, Settings
from agt_cli.command_settings.tune import TuningObjective, not_one_linear_model

SCORES: tuple[TuningObjective, ...] = ("accuracy", "certified", "expected")
_FOLDS_KEY = "folds"  # public key of the hash that assigns units to folds


@dataclass(frozen=True)
class Candidate:
    """Settings that are compared with others.

    Attributes:
        model: the linear model that a run with these settings trains, not trained yet, with the
            run's constants.
        rows: the public rows, with features as the run makes them.
    """

    model: LinearModel
    rows: Records

    @classmethod
    def from_dataset(cls, dataset: Dataset, settings: Settings, rows: Records) -> "Candidate":
        """Return the candidate for a run on a dataset.

        Args:
            dataset: the run's data. Of its training records only the public ones are read, and
                only if features are whitened.
            settings: the settings of the run.
            rows: the public rows.

        Raises:
            ConfigError: the settings do not train one linear model, there is no declared size, or
                features of public rows depend on private records.
        """
        model = untrained_linear_model(Problem(dataset, settings))
        if not model.plan.declared:
            raise ConfigError(
                "dataset.declared_size is missing, but `agt tune` needs a public number of "
                "records, because the strength of regularisation depends on it: give "
                "dataset.declared_size=NUMBER"
            )
        if not dataset.preprocessing.held:
            reason = dataset.preprocessing.missing
            raise ConfigError(
                "`agt tune` chooses settings only on public data, but here the features of "
                f"public rows depend on private records, because {reason}"
            )
        without_records = model.problem.with_dataset(dataset.without_records)
        return cls(replace(model, problem=without_records), rows)

    def scores(self, folds: int, k: int, release: GaussianDP) -> np.ndarray:
        """Train a model for each fold, and return its scores, [folds, 3], ordered as ``SCORES``.

        Args:
            folds: the number of folds.
            k: the distance at which ``certified`` counts a label.
            release: the budget of the released weights that ``expected`` is about.
        """
        return np.array(
            [_scores(*stand_in, k, release) for stand_in in self.models_of_folds(folds)]
        )

    def models_of_folds(self, folds: int) -> Iterator[tuple[LinearModel, Records]]:
        """Yield, for each fold, the model that was trained without its rows, and its rows."""
        for training_rows, validation_rows in _split_into_folds(self.rows, folds):
            yield self._train_on_public(training_rows), validation_rows

    def _train_on_public(self, rows: Records) -> LinearModel:
        """Return the run's model with weights that are trained on public rows.

        It takes as many steps as the run, at the same rates. Each step is over all rows, because
        batches of so few rows would often exceed their cap n_max.
        """
        problem = self.model.problem
        plan = self.model.plan
        training = problem.setup.training
        count = len(rows)
        n_max = max(math.floor(plan.n_max / plan.normalizer * count), math.ceil(1.1 * count))
        one_batch = replace(training.batch, count=1, normalizer=None, n_max=n_max)
        training = replace(training, epochs=plan.steps, batch=one_batch)
        settings = replace(problem.settings, training=training)
        on_rows = Problem(problem.dataset.with_training_records(rows, count), settings)
        # A public row is its own unit here, so the cap on a unit's rows cannot refuse any.
        head = untrained_linear_model(on_rows, self.model.features).retrained(
            replace(rows, units=rows.ids)
        )
        return self.model.with_weight(head.trained.weight)


def untrained_linear_model(problem: Problem, features: FeatureMap | None = None) -> LinearModel:
    """Return the linear model that a problem's settings train, before training.

    Args:
        problem: the data and the settings.
        features: the public feature map; None: it is made from the problem's data.

    Raises:
        ConfigError: the settings train another kind of model, or several.
    """
    head = None
    if problem.settings.ensemble.members == 1:
        head = problem.settings.certificate.untrained_head(problem, features)
    if head is None:
        raise not_one_linear_model()
    return head


def choose_candidate(scores: Sequence[np.ndarray], objective: TuningObjective) -> int:
    """Return the index of the candidate to choose.

    Candidates whose mean of the objective is within one standard error of the best mean are taken
    as equally good. Of these it is the one with the best mean of a second score: accuracy, if the
    objective is ``certified``, and ``certified`` otherwise; the first one if several are equal.

    Args:
        scores: the scores of each candidate, [folds, 3] in the order of ``SCORES``.
        objective: the score to maximise.
    """
    first = SCORES.index(objective)
    second = SCORES.index("accuracy" if objective == "certified" else "certified")
    means = [float(of_folds[:, first].mean()) for of_folds in scores]
    best = int(np.argmax(means))
    limit = means[best] - standard_error(scores[best][:, first])
    nearly_best = [candidate for candidate, mean in enumerate(means) if mean >= limit]
    return max(nearly_best, key=lambda candidate: float(scores[candidate][:, second].mean()))


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean of the folds' values, [folds]."""
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _scores(model: LinearModel, rows: Records, k: int, release: GaussianDP) -> list[float]:
    """Return the scores of a fold's model on the rows of this fold, in the order of ``SCORES``.

    Args:
        model: trained on the other folds.
        rows: rows on which it was not trained.
        k: the number of edits for which the score ``certified`` counts a label.
        release: the budget of the released weights that the score ``expected`` is about.
    """
    is_right = model.predict(rows.features) == rows.labels
    is_certified = model.certify(rows.features).stable_distance >= k
    phi = model.phi(rows.features)
    expected = expected_accuracy(
        logits_of(model.trained.weight, phi),
        bound_norms(phi),
        rows.labels,
        noise_scale(model.l2_sensitivity, release),
    )
    return [float(is_right.mean()), float((is_right & is_certified).mean()), expected]


def _split_into_folds(rows: Records, folds: int) -> Iterator[tuple[Records, Records]]:
    """Yield, for each fold, the rows of the other folds and its own rows.

    Units are assigned to folds in turn, in the order of a keyed hash of their names.

    Raises:
        ConfigError: there are fewer units than folds.
    """
    names, unit = np.unique(rows.units, return_inverse=True)
    unit_count = len(names)
    if unit_count < folds:
        raise ConfigError(
            f"tune.folds={folds} needs at least {folds} units (people), but the public rows "
            f"belong to only {unit_count}: give a smaller tune.folds, or more public rows"
        )
    fold_of_unit = np.empty(unit_count, dtype=np.int64)
    order = np.argsort(keyed_hash(names, _FOLDS_KEY), kind="stable")
    fold_of_unit[order] = np.arange(unit_count) % folds
    for fold in range(folds):
        in_fold = fold_of_unit[unit] == fold
        yield rows.take(~in_fold), rows.take(in_fold)
