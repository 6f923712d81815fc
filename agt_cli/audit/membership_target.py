"""What a membership audit attacks: a run's own model; and every attack's scores of records it was trained on or not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from agt.audit.membership import ATTACKS, COPIES, Reference, confidences, label_scores, loss_scores
from agt.audit.roc import Roc
from agt.audit.shadows import Pool, class_logits
from agt.certificates.conditions import Condition
from agt.mechanisms.release import Labelling, labels_from, prepare_weights
from agt.mechanisms.weights import ReleaseWeights
from agt.models.model import Model
from agt.randomness import SystemRandomness
from agt_cli.audit.job import Given
from agt_cli.audit.opening import mechanism_of
from agt_cli.report.console import Console
from agt_cli.runs.mechanisms import MechanismConfig
from agt_cli.runs.model import certifying
from agt_cli.runs.queries import OpenedRun

LABELS = "labels"
WORDS = {
    "loss": "one threshold on the loss for all records (Yeom et al. 2018)",
    "lira_online": "LiRA: likelihood ratio of models with and without the record (Carlini et al. 2022)",
    "lira_offline": "LiRA from models without the record alone",
    "rmia": "RMIA, offline: pairwise likelihood ratios with the pool (Zarifzadeh et al. 2024)",
    LABELS: f"labels alone: of the record and {COPIES} noisy copies (Choquette-Choo et al. 2021)",
}


@dataclass(frozen=True)
class Target:
    """The run's own model and what is judged by it.

    Attributes:
        opened: the run.
        pool: its records, and those that it has not seen.
        phi: [n] its confidence in each record's label, as ln(p/(1 - p)).
        distance: [n] stable distances.
        scores: name of an attack -> [n].
        how: who gave the labels: the model, or a mechanism.
    """

    opened: OpenedRun
    pool: Pool
    phi: np.ndarray
    distance: np.ndarray
    scores: Mapping[str, np.ndarray]
    how: str

    def roc(self, name: str, rows: np.ndarray | slice = slice(None)) -> Roc:
        """Of some records. Raises ConfigError: one side is empty."""
        return Roc(self.scores[name][rows], self.pool.member[rows])

    @property
    def rocs(self) -> dict[str, Roc]:
        """Of every attack; none where one side is empty."""
        return {name: self.roc(name) for name in self.scores} if self.two_sided else {}

    @property
    def two_sided(self) -> bool:
        """Whether there are members and non-members."""
        return bool(self.pool.member.any() and not self.pool.member.all())

    @property
    def sides(self) -> str:
        """How many there are of each."""
        members = int(self.pool.member.sum())
        return f"{members:,} training records against {len(self.pool) - members:,} test records"

    @property
    def unlike(self) -> float:
        """The most by which the shares of a class differ between both sides, which scores tell, too."""
        member, labels, classes = self.pool.member, self.pool.records.labels, len(self.opened.dataset.classes)
        members, others = (np.bincount(labels[side], minlength=classes) / side.sum() for side in (member, ~member))
        return float(np.abs(members - others).max())


def attacked(given: Given, opened: OpenedRun, pool: Pool, reference: Reference | None, console: Console) -> Target:
    """Every attack's scores on the run's own model; without shadow models, of those that need none."""
    model, records = opened.model, pool.records
    phi = confidences(class_logits(model, records.features), records.labels)
    if reference is None:
        scores = {"loss": loss_scores(phi)}
    else:
        scores = {name: attack(phi, reference) for name, attack in ATTACKS.items()}
    answer, how = _service(given, model, opened.conditions, records.features)
    scores[LABELS] = label_scores(answer, records.features, records.labels, given.seed)
    with certifying(model, console) as report:
        distance = model.certify(records.features, on_progress=report).stable_distance
    return Target(opened, pool, phi, distance, scores, how)


def passes_through(given: Given) -> MechanismConfig | None:
    """What labels pass through; None: nothing. Raises ConfigError: no budget, or two."""
    return None if given.config.get("mechanism") is None else mechanism_of(given)


def _service(
    given: Given, model: Model, conditions: tuple[Condition, ...], features: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    """(what gives labels, in words): the model itself, or releases that are drawn as agt predict draws them."""
    config, randomness = passes_through(given), SystemRandomness()
    if config is None:
        return model.predict, "nominal labels"
    mechanism = config.mechanism(model.problem.classes, (COPIES + 1) * len(features))
    how = f"labels released by {config.kind.name}"
    if isinstance(mechanism, ReleaseWeights):
        released = prepare_weights(model, mechanism, conditions=conditions).draw(randomness)
        return lambda queries: labels_from(model, queries)(released), how
    accounting, counting = (given.config[key] for key in ("accounting", "counting"))
    labelling = Labelling.of(model, mechanism, conditions, accounting, counting)  # type: ignore[arg-type]
    return lambda queries: labelling.labels(queries, randomness), how
