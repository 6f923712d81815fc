"""Poisoned neighbours: records that an attacker adds so that one natural record decides a natural query's label.

A guarantee is about every pair of neighbours, so it must hold among records that somebody chose to make it fail (Chadha et
al. 2024: adversaries who poison learn most). Poisons lie on both sides of the pair; the target alone differs.

How poisons are chosen. On a linear head, a record's influence on a query's margin is in closed form: with the steps'
curvature H, n steps of rate r sum to A = H^-1 (1 - (1 - r H)^n), and the record moves the margin by its gradient's share of
A phi(query). Greedily, each poison is the one after which the target's influence is greatest. The others have another label
and lie on the half-circle from the query's opposite to the query, all at one place, which is halved between "too weak" and
"too strong", by training again, until the label with the target differs from the one without. In an ensemble all go into
the target's shard: whoever names records chooses where the keyed hash puts them. Any other model is a black box.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count, islice

import numpy as np
import torch

from agt.audit.neighbours import retrained, with_added, without
from agt.data.dataset import Records
from agt.data.ids import CONTENT
from agt.errors import ConfigError
from agt.models.ensemble import EnsembleModel
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.training.ensemble import EnsembleConfig, shards
from agt.training.linear import derivative

TRIES = 64  # names at once
WEAKEST = 1e-6  # of the curvature
NARROWEST = 2.0**-40  # of where poisons may lie


@dataclass(frozen=True)
class Neighbours:
    """Training sets that differ in one unit, and where to look.

    Attributes:
        having, lacking: with the unit, and without it or with another in its place.
        query: [1, ...] a natural query, as the head takes it; None: any.
        poisons: how many records of both are the attacker's.
        trained: how many models were trained to find them.
        decided: they answer the query differently.
        needed: where they do not, about how many poisons would; None: nobody knows.
    """

    having: Records
    lacking: Records
    query: np.ndarray | None = None
    poisons: int = 0
    trained: int = 0
    decided: bool = False
    needed: int | None = None


@dataclass(frozen=True)
class Aim:
    """Who could decide what.

    Attributes:
        query: row among the queries.
        target: row among the training records.
        rival: the label that comes second where the target counts.
        member: of an ensemble, in whose shard the target is; None: there is one model.
    """

    query: int
    target: int
    rival: int
    member: int | None


# -- neighbours ------------------------------------------------------------------------------------------------------------


def edited(problem: Problem, records: Records, row: int) -> Records:
    """Without the unit of a record; where the relation replaces units, with its first record under another label in its
    place, named so that an ensemble deals it to another shard."""
    gone = records.units == records.units[row]
    rest = without(records, gone)
    if RELATIONS[problem.settings.relation.name].touches == 1:
        return rest
    ensemble = problem.settings.ensemble
    home = int(shards(records.units[[row]], ensemble)[0])
    label = (int(records.labels[row]) + 1) % problem.classes
    place = (home + 1) % ensemble.members
    return with_added(rest, newcomers(records, records.features[[row]], [label], "replacing", place, ensemble))


def newcomers(
    records: Records, features: np.ndarray, labels: list[int], name: str, shard: int, ensemble: EnsembleConfig
) -> Records:
    """Private records, each a unit of its own, that an ensemble deals to one shard."""
    ids = np.array(list(islice(names_into(name, shard, ensemble, _hashes(records)), len(labels))))
    features = np.asarray(features, dtype=records.features.dtype)
    return Records(features, np.array(labels, dtype=np.int64), ids, ids.copy(), np.zeros(len(ids), dtype=bool))


def names_into(name: str, shard: int, ensemble: EnsembleConfig, hashes: bool = False) -> Iterator[str]:
    """Names that the keyed hash deals to this shard, as many as are wanted.

    Args:
        hashes: they look like the ids that content has: whoever varies a record's last digits draws such ids.
    """
    for turn in count():
        tried = [f"{name}-{turn * TRIES + each}" for each in range(TRIES)]
        if hashes:
            tried = [blake2b(each.encode(), digest_size=16).hexdigest() for each in tried]
        home = shards(np.array(tried), ensemble)
        yield from (each for each, at in zip(tried, home.tolist(), strict=True) if at == shard)


def _hashes(records: Records) -> bool:
    return all(CONTENT.fullmatch(str(name)) for name in records.ids[:TRIES].tolist())


# -- who decides what ------------------------------------------------------------------------------------------------------


def aims(model: Model, records: Records, queries: np.ndarray, most: int) -> list[Aim]:
    """The queries nearest to a change of label, each with the private record that has most influence there; the nearest
    first. Of an ensemble those that one member decides alone."""
    if not isinstance(model, EnsembleModel):
        margins = model.margins(queries)
        nearest = np.argsort(_least(margins), kind="stable")[:most]
        return [_aim(model, records, queries, int(at), None, margins[:, at]) for at in nearest]
    margins = np.stack([member.margins(queries) for member in model.members])
    deciding = _deciding(margins, model.problem.classes)
    least = np.where(deciding, np.stack([_least(each) for each in margins]), np.inf)
    made = list[Aim]()
    for place in np.argsort(least, axis=None, kind="stable")[:most].tolist():
        member, at = divmod(place, least.shape[1])
        mine = shards(records.units, model.problem.settings.ensemble) == member
        if np.isfinite(least[member, at]) and (mine & ~records.public).any():
            made.append(_aim(model.members[member], records, queries, at, member, margins[member, :, at], mine))
    return made


def _aim(
    model: Model,
    records: Records,
    queries: np.ndarray,
    at: int,
    member: int | None,
    margins: np.ndarray,
    among: np.ndarray | None = None,
) -> Aim:
    eligible = ~records.public if among is None else among & ~records.public
    rows = np.flatnonzero(eligible)
    rival = (0 if margins[0] > 0 else 1) if len(margins) == 1 else int(np.argsort(margins)[-2])
    moves = influence(model, records.take(rows), queries[at : at + 1], rival)
    return Aim(at, int(rows[int(np.argmax(np.abs(moves)))]), rival, member)


def _least(margins: np.ndarray) -> np.ndarray:
    """[n] how far each query is from another label."""
    distance: np.ndarray = np.abs(margins[0]) if len(margins) == 1 else margins.max(axis=0)
    return distance


def _deciding(margins: np.ndarray, classes: int) -> np.ndarray:
    """[T, n] bool: the winner changes if this member takes its second label instead. Of margins [T, lines, n]."""
    labels = (margins[:, 0] > 0).astype(int) if classes == 2 else margins.argmax(axis=1)
    second = 1 - labels if classes == 2 else np.argsort(margins, axis=1)[:, -2]
    counts = np.stack([(labels == c).sum(axis=0) for c in range(classes)])
    winner, decides, at = counts.argmax(axis=0), np.zeros(labels.shape, dtype=bool), np.arange(labels.shape[1])
    for member in range(len(labels)):
        moved = counts.copy()
        moved[labels[member], at] -= 1
        moved[second[member], at] += 1
        decides[member] = moved.argmax(axis=0) != winner
    return decides


# -- influence -------------------------------------------------------------------------------------------------------------


def influence(model: Model, records: Records, query: np.ndarray, rival: int) -> np.ndarray:
    """[n] how far each record moves the query's margin over the rival, about; other models than linear heads: how much it
    looks like the query."""
    if isinstance(model, LinearModel):
        return _Curved.of(model, records).influence(query, rival)
    flat = np.asarray(records.features, dtype=np.float64).reshape(len(records), -1)
    return flat @ np.asarray(query, dtype=np.float64).ravel() / np.maximum(np.linalg.norm(flat, axis=1), 1e-300)


@dataclass(frozen=True)
class _Curved:
    """A linear head near its weights, in closed form.

    Attributes:
        model: the head.
        phi: [n, w] features of the records that it was trained on.
        labels: [n].
        reach: [w, w] A, over the normaliser.
    """

    model: LinearModel
    phi: np.ndarray
    labels: np.ndarray
    reach: np.ndarray

    @classmethod
    def of(cls, model: LinearModel, records: Records) -> "_Curved":
        phi = np.asarray(model.phi(np.asarray(records.features)), dtype=np.float64)
        training, plan = model.trained.training, model.plan
        wrong = np.abs(_residuals(model, model.trained.weight, phi, records.labels))
        spread = np.where(wrong < model.trained.loss.reach, wrong * (1 - wrong), 0).mean(axis=1)  # flat where it is clamped
        total = plan.normalizer * plan.count
        curvature = (phi * spread[:, None]).T @ phi / total + training.weight_decay * np.eye(phi.shape[1])
        values, vectors = np.linalg.eigh(curvature)
        values = np.maximum(values, WEAKEST * max(float(values.max()), 1e-300))
        steps = np.minimum(training.lr * values * plan.steps, 700.0)  # (1 - r h)^n is about exp(-r h n)
        return cls(model, phi, records.labels, (vectors * (-np.expm1(-steps) / values)) @ vectors.T / total)

    def influence(self, query: np.ndarray, rival: int) -> np.ndarray:
        """[n] of each record on the query's margin over the rival."""
        toward = self.reach @ self._phi(query)[0]
        residuals = _residuals(self.model, self.model.trained.weight, self.phi, self.labels)
        return (self.phi @ toward) * (residuals @ self._direction(query, rival))

    def _phi(self, query: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.phi(query), dtype=np.float64)

    def _direction(self, query: np.ndarray, rival: int) -> np.ndarray:
        """[J] the margin over the rival as a sum of logits."""
        outputs = len(self.model.trained.weight)
        if outputs == 1:
            return np.ones(1)
        direction = np.zeros(outputs)
        direction[int(self.model.predict(query)[0])], direction[rival] = 1, -1
        return direction

    def greedy(
        self, target: tuple[np.ndarray, int], query: np.ndarray, rival: int, allowance: int
    ) -> list[tuple[int, int]]:
        """Poisons after which the target's influence is greatest, chosen one by one: (0: target's features, 1: query's;
        label)."""
        weight = self.model.trained.weight.clone()
        classes = self.model.problem.classes
        phi = np.stack([self._phi(target[0])[0], self._phi(query)[0]])
        towards, direction = float(phi[0] @ self.reach @ phi[1]), self._direction(query, rival)
        chosen = list[tuple[int, int]]()

        def after(which: int, label: int) -> torch.Tensor:
            moved = np.outer(_residuals(self.model, weight, phi[[which]], np.array([label]))[0], self.reach @ phi[which])
            return weight - torch.from_numpy(moved)

        def score(made: torch.Tensor) -> float:
            return abs(towards * float(_residuals(self.model, made, phi[:1], np.array([target[1]]))[0] @ direction))

        options = [(which, label) for which in (0, 1) for label in range(classes)]
        for _ in range(allowance):
            best = max(options, key=lambda option: score(after(*option)))
            weight = after(*best)
            chosen.append(best)
        return chosen


def _residuals(model: LinearModel, weight: torch.Tensor, phi: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[n, J] the loss's gradient in each logit."""
    found: np.ndarray = derivative(model.trained.loss, torch.from_numpy(phi) @ weight.T, torch.from_numpy(labels)).numpy()
    return found


# -- poisons ---------------------------------------------------------------------------------------------------------------


def poisoned(
    problem: Problem, model: Model, queries: np.ndarray, allowance: int, retrainings: int, most: int = 4
) -> Neighbours | None:
    """Poisoned neighbours that answer a natural query differently; where none are found, those around the query that was
    nearest to a change. None: no record decides anything (an ensemble's votes are never close).

    Args:
        problem: of the run, with its records.
        model: trained on it.
        queries: [n, ...] natural ones.
        allowance: a, how many records are the attacker's.
        retrainings: at most so many models are trained.
        most: queries tried.

    Raises:
        ConfigError: training refuses so many more records.
    """
    trainer, nearest = _Trainer(problem, allowance, retrainings), list[Neighbours]()
    for aim in aims(model, problem.dataset.train, queries, most):
        made = _Poisoning(problem, model, queries[aim.query : aim.query + 1], aim, allowance)
        found = made.search(trainer)
        if found.decided:
            return replace(found, trained=trainer.trained)
        nearest.append(found)
    return replace(nearest[0], trained=trainer.trained) if nearest else None


@dataclass
class _Trainer:
    """Trains neighbours, and counts.

    Attributes:
        problem: of the run.
        allowance: for messages.
        most: models that may be trained.
        trained: how many were.
    """

    problem: Problem
    allowance: int
    most: int
    trained: int = 0

    @property
    def spent(self) -> bool:
        """There is no room for another pair."""
        return self.trained + 2 > self.most

    def models(self, found: Neighbours) -> tuple[Model, Model]:
        """With the unit and without it, boxes left out."""
        self.trained += 2
        try:
            having, lacking = (retrained(self.problem, side, (0,)) for side in (found.having, found.lacking))
        except ConfigError as error:
            raise ConfigError(f"audit.poisons={self.allowance}: training refuses so many more records: {error}") from None
        return having, lacking


class _Poisoning:
    """Poisons around one query, by how near to it they lie."""

    def __init__(self, problem: Problem, model: Model, query: np.ndarray, aim: Aim, allowance: int) -> None:
        self.problem, self.model, self.query, self.aim = problem, model, query, aim
        self.ensemble, records = problem.settings.ensemble, problem.dataset.train
        self.shard = 0 if aim.member is None else aim.member
        part = model.members[aim.member] if isinstance(model, EnsembleModel) and aim.member is not None else model
        self.strengthening = list[tuple[int, int]]()
        if isinstance(part, LinearModel):
            mine = records if aim.member is None else records.take(shards(records.units, self.ensemble) == self.shard)
            target = records.features[[aim.target]], int(records.labels[aim.target])
            self.strengthening = _Curved.of(part, mine).greedy(target, query, aim.rival, allowance // 2)
        self.copies = allowance - len(self.strengthening)
        self.aside = _across(np.asarray(query, dtype=np.float64))

    def search(self, trainer: _Trainer) -> Neighbours:
        """Halve between poisons that are too weak and too strong, until the target decides."""
        label, low, high, factor = int(self.model.predict(self.query)[0]), -1.0, 1.0, 1.0
        weakest = self.neighbours(factor)
        while not trainer.spent and high - low > NARROWEST:
            found = self.neighbours(factor)
            models = trainer.models(found)
            having, lacking = (int(model.predict(self.query)[0]) for model in models)
            if having != lacking:
                return replace(found, decided=True)
            if factor == 1.0 and having == label:
                return replace(weakest, needed=self._needed(models[0]))
            low, high = (factor, high) if having == label else (low, factor)
            factor = (low + high) / 2
        return weakest

    def _needed(self, having: Model) -> int | None:
        """About how many poisons would turn the label, if each moved the margin by as much; None: nobody knows."""
        before, after = (float(_least(model.margins(self.query))[0]) for model in (self.model, having))
        if after >= before:
            return None
        return len(self.strengthening) + math.ceil(self.copies * before / (before - after))

    def neighbours(self, factor: float) -> Neighbours:
        """With this share of the query in the poisons, from -1 to 1."""
        placed = factor * self.query + np.sqrt(1 - factor**2) * self.aside
        records, target = self.problem.dataset.train, self.problem.dataset.train.features[[self.aim.target]]
        features = [(target, self.query)[which] for which, _ in self.strengthening] + [placed] * self.copies
        labels = [label for _, label in self.strengthening] + [self.aim.rival] * self.copies
        poisons = newcomers(records, np.concatenate(features), labels, "poison", self.shard, self.ensemble)
        having = with_added(records, poisons)
        return Neighbours(having, edited(self.problem, having, self.aim.target), self.query, len(poisons))


def _across(query: np.ndarray) -> np.ndarray:
    """Something as long as the query and at a right angle to it."""
    along, other = query.ravel(), np.resize([1.0, -1.0], query.size)
    other = other - (other @ along) / max(float(along @ along), 1e-300) * along
    longer: np.ndarray = other * np.linalg.norm(along) / max(float(np.linalg.norm(other)), 1e-300)
    return longer.reshape(query.shape)
