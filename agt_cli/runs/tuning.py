"""Settings compared on public rows alone, by folds: what each would give a run on the private
records.

A fold's head is trained on the public rows of the other folds, with B set to their number: the mean
gradient, and with it the head, is that of a run on the B private records, as far as both samples
are alike. What a recipe settles from B it settles from the real one. Distances and the noise of a
release are the real run's too: they follow from public constants.

Nothing here reads a private record: ``Candidate`` has public rows, and constants.
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
from agt_cli.command_settings.tune import TuningObjective

SCORES: tuple[TuningObjective, ...] = ("accuracy", "certified", "expected")
_KEY = "folds"  # public key of the hash that deals units to folds


@dataclass(frozen=True)
class Candidate:
    """One of the settings compared.

    Attributes:
        model: its head, untrained, with the constants of the real run.
        rows: the public rows, as its dataset makes their features.
    """

    model: LinearModel
    rows: Records

    @classmethod
    def of(cls, dataset: Dataset, settings: Settings, rows: Records) -> "Candidate":
        """For a run on a dataset, of whose training records only those marked public are read, and
        they only to whiten.

        Raises:
            ConfigError: no closed form, no declared size, or features that depend on private
                records; by key.
        """
        model = linear_head(Problem(dataset, settings))
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
        return cls(
            replace(model, problem=model.problem.with_dataset(dataset.without_records)), rows
        )

    def scores(self, folds: int, k: int, release: GaussianDP) -> np.ndarray:
        """[folds, 3] each fold's ``SCORES``.

        Args:
            k: the distance that ``certified`` asks for.
            release: the budget of the released weights that ``expected`` is about.
        """
        return np.array([_judge(*parts, k, release) for parts in self.stand_ins(folds)])

    def stand_ins(self, folds: int) -> Iterator[tuple[LinearModel, Records]]:
        """(what stands for the real run's head, trained without a fold; the fold's rows), for
        each fold.
        """
        return ((self._stand_in(inside), outside) for inside, outside in _folds(self.rows, folds))

    def _stand_in(self, rows: Records) -> LinearModel:
        """The real run's head, its weights from these rows: as many steps at the same rates, each
        over all of the rows, B being their number; shares of them as small as its batches would not
        stay below their cap.
        """
        problem, plan = self.model.problem, self.model.plan
        training, n_max = (
            problem.setup.training,
            math.floor(plan.n_max / plan.normalizer * len(rows)),
        )
        batch = replace(
            training.batch, count=1, normalizer=None, n_max=max(n_max, math.ceil(1.1 * len(rows)))
        )
        settings = replace(
            problem.settings, training=replace(training, epochs=plan.steps, batch=batch)
        )
        alike = Problem(problem.dataset.with_training_records(rows, len(rows)), settings)
        trained = linear_head(alike, self.model.features).retrained(replace(rows, units=rows.ids))
        return self.model.with_weight(trained.trained.weight)


def linear_head(problem: Problem, features: FeatureMap | None = None) -> LinearModel:
    """The head that a problem's settings train, before training.

    Args:
        features: the public feature map; None: made from the problem's data.

    Raises:
        ConfigError: they train none, or several.
    """
    head = None
    if problem.settings.ensemble.members == 1:
        head = problem.settings.certificate.untrained_head(problem, features)
    if head is None:
        raise ConfigError(
            "`agt tune` only compares single linear models, because it computes stable "
            "distances and noise in closed form: give model=linear certificate=erm, and "
            "leave out ensemble settings"
        )
    return head


def best(scores: Sequence[np.ndarray], objective: TuningObjective) -> int:
    """The index of the choice: of all whose mean lies within one standard error of the greatest,
    the one with most of the other thing: accuracy where the objective is the certified fraction,
    and the certified fraction elsewhere; the first of equals.

    Args:
        scores: [folds, 3] of each.
    """
    at = SCORES.index(objective)
    other = SCORES.index("accuracy" if objective == "certified" else "certified")
    top = max(range(len(scores)), key=lambda i: float(scores[i][:, at].mean()))
    least = float(scores[top][:, at].mean()) - standard_error(scores[top][:, at])
    near = [i for i, score in enumerate(scores) if float(score[:, at].mean()) >= least]
    return max(near, key=lambda i: float(scores[i][:, other].mean()))


def standard_error(values: np.ndarray) -> float:
    """Of the mean of the folds' values."""
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _judge(model: LinearModel, rows: Records, k: int, release: GaussianDP) -> list[float]:
    """A stand-in's ``SCORES`` on rows that it has not seen."""
    known, right = model.certify(rows.features), model.predict(rows.features) == rows.labels
    phi, sigma = model.phi(rows.features), noise_scale(model.l2_sensitivity, release)
    expected = expected_accuracy(
        logits_of(model.trained.weight, phi), bound_norms(phi), rows.labels, sigma
    )
    return [float(right.mean()), float((right & (known.stable_distance >= k)).mean()), expected]


def _folds(rows: Records, folds: int) -> Iterator[tuple[Records, Records]]:
    """(the other folds, the fold), each in turn: units are dealt out in the order of a keyed hash
    of their names.

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
    place = np.empty(len(names), dtype=np.int64)
    place[np.argsort(keyed_hash(names, _KEY), kind="stable")] = np.arange(len(names)) % folds
    for fold in range(folds):
        outside = place[unit] == fold
        yield rows.take(~outside), rows.take(outside)
