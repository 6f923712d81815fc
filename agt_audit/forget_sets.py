"""Sets of records to erase: drawn at random, chosen by an adversary, or by looking at the model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from agt.data.records import Records
from agt.errors import ConfigError
from agt.models.model import Model
from agt.numeric import labels_of
from agt.training.ensemble import assign_shards
from agt_audit.influence import margins_of_labels

RemovedRows = np.ndarray
Choose = Callable[[Any], RemovedRows]
"""What an attacker sees of the present model (``ModelState.visible``; None: nothing) -> the rows to
erase next.
"""
MAX_WIDTH = 512  # records with more features are projected to so many random directions
MAX_CANDIDATES = 2_000  # records among which near-duplicates, or overruled members, are searched


@dataclass(frozen=True)
class Attack:
    """A sequence of requests to erase records.

    Attributes:
        name: how the records are chosen, in words.
        requests: for each request, a function that chooses its rows of the training data. No row
            may be chosen twice.
    """

    name: str
    requests: tuple[Choose, ...]

    @classmethod
    def at_once(cls, name: str, rows: RemovedRows) -> "Attack":
        """Return an attack of one request for ``rows``, whatever is seen of the model."""
        return cls(name, (lambda visible: rows,))

    @property
    def adaptive(self) -> bool:
        """Whether a request may depend on the result of an earlier one: there are several."""
        return len(self.requests) > 1


class ForgetSets:
    """Sets of records to erase, drawn at random or chosen to make unlearning hard.

    Args:
        train: the run's n training records.
        families: [n] str, the same for records that are identical in all but their ids.
        records: how many records each set has; a set of a whole class has all of its records.
        trials: how many sets are drawn at random.
        seed: the seed of all draws.

    Raises:
        ConfigError: fewer than ``records + 2`` records can be erased.

    Attributes:
        erasable: the rows that can be erased: those of private records, and the last row of
            identical ones, because it is the one that ``agt unlearn`` erases.
        features: [n, width] float64, each record's as one vector; of more than ``MAX_WIDTH``
            features, a random projection.
    """

    def __init__(
        self, train: Records, families: np.ndarray, records: int, trials: int, seed: int
    ) -> None:
        self.train = train
        self.records = records
        self.trials = trials
        self.seed = seed
        last_of_family = {family: row for row, family in enumerate(families.tolist())}
        private_rows = sorted(row for row in last_of_family.values() if not train.public[row])
        self.erasable = np.array(private_rows, dtype=np.int64)
        self._check_records()
        self.features = np.asarray(train.features).reshape(len(train), -1).astype(np.float64)
        width = self.features.shape[1]
        if width > MAX_WIDTH:
            projection = np.random.default_rng(seed).normal(size=(width, MAX_WIDTH))
            self.features = self.features @ projection / np.sqrt(MAX_WIDTH)

    def _check_records(self) -> None:
        """Raise ConfigError unless ``records`` can be erased and two more remain."""
        if not len(self.erasable):
            raise ConfigError(
                "every training record of this run is public, so there is nothing to erase. "
                "Audit a run with private records"
            )
        if self.records > len(self.erasable) - 2:
            maximum = max(1, len(self.erasable) - 2)
            raise ConfigError(
                f"audit.records={self.records} is too many: {len(self.erasable)} training records "
                f"may be erased, and at least two must remain. Give {maximum} or fewer"
            )

    def attacks(self, by_shard: bool = False) -> Iterator[Attack]:
        """Yield an attack for each set of records.

        Args:
            by_shard: what the adaptive attack chooses after its first request. True: records of
                one member's shard, of an ensemble whose shards stay fixed when records are
                erased. False: the records that the model answers most wrongly.
        """
        rng = np.random.default_rng(self.seed)
        count = self.records
        for draw in range(1, self.trials + 1):
            rows = rng.choice(self.erasable, count, replace=False)
            yield Attack.at_once(f"{count} records chosen at random, draw {draw}", rows)
        leverage, error = self._influence()
        influence = leverage * error**2 / (1 - leverage) ** 2
        most_influential = self._rows_with_largest(influence)
        yield Attack.at_once(f"the {count} most influential records", most_influential)
        outliers = self._rows_with_largest(leverage)
        yield Attack.at_once(f"the {count} farthest outliers", outliers)
        yield Attack.at_once(
            f"{count} records whose near-duplicates stay in the data", self._near_duplicates(rng)
        )
        yield Attack.at_once("all records of the smallest class", self._smallest_class())
        if count > 1:
            yield self._adaptive_attack(rng, by_shard)

    def _adaptive_attack(self, rng: np.random.Generator, by_shard: bool) -> Attack:
        """Return an attack of two requests, whose second is chosen after looking at the model.

        Args:
            rng: draws the rows of the first request.
            by_shard: True: the second request chooses records of one member's shard; False: the
                records that the model answers most wrongly.
        """
        first_count = self.records // 2
        second_count = self.records - first_count
        first_rows = rng.choice(self.erasable, first_count, replace=False)
        remaining = self.erasable[~np.isin(self.erasable, first_rows)]
        choose = self._rows_of_overruled_member if by_shard else self._most_wrong_rows
        name = (
            f"{first_count} records at random, then {second_count} chosen by looking at the "
            "outputs after the first erasure"
        )
        return Attack(name, (lambda visible: first_rows, partial(choose, remaining, second_count)))

    def _smallest_class(self) -> RemovedRows:
        """Return the erasable rows of the class with fewest; of two classes, all but one row."""
        labels, counts = np.unique(self.train.labels[self.erasable], return_counts=True)
        smallest = labels[counts.argmin()]
        rows = self.erasable[self.train.labels[self.erasable] == smallest]
        if len(np.unique(self.train.labels)) <= 2:  # a model needs two classes
            return rows[:-1]
        return rows

    def _rows_with_largest(self, scores: np.ndarray) -> RemovedRows:
        """Return the ``records`` erasable rows with the largest scores.

        Args:
            scores: [n] one for each training record.
        """
        largest_first = np.argsort(-scores[self.erasable], kind="stable")
        return self.erasable[largest_first[: self.records]]

    def _influence(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the leverage [n] and the error [n] of each record in a ridge regression.

        The regression is of the classes, as indicators, on the features. Leverage is in
        [0, 1); the error is the l2 norm of the residuals. Together they say how far deleting the
        record moves the regression.
        """
        x = np.column_stack([self.features, np.ones(len(self.features))])
        y = np.eye(int(self.train.labels.max()) + 1)[self.train.labels]
        ridge = 1e-3 * np.trace(x.T @ x) / x.shape[1]
        gram = x.T @ x + ridge * np.eye(x.shape[1])
        solved = np.linalg.solve(gram, x.T)
        leverage = np.clip(np.einsum("nd,dn->n", x, solved), 0, 1 - 1e-9)
        return leverage, np.linalg.norm(y - x @ (solved @ y), axis=1)

    def _near_duplicates(self, rng: np.random.Generator) -> RemovedRows:
        """Return rows that have a close neighbour of the same label which is not erased.

        Those with the closest neighbours are chosen, out of ``MAX_CANDIDATES`` random records.

        Returns:
            At most ``records`` rows.
        """
        count = min(MAX_CANDIDATES, len(self.erasable))
        candidates = rng.choice(self.erasable, count, replace=False)
        distances = cdist(self.features[candidates], self.features[candidates])
        labels = self.train.labels[candidates]
        distances[labels[:, None] != labels] = np.inf
        np.fill_diagonal(distances, np.inf)
        chosen: list[int] = []
        remaining: set[int] = set()  # neighbours of chosen records, which must not be erased
        for candidate in np.argsort(distances.min(axis=1)).tolist():
            if len(chosen) < self.records and candidate not in remaining:
                chosen.append(candidate)
                remaining.add(int(distances[candidate].argmin()))
        return candidates[chosen]

    def _most_wrong_rows(self, remaining: RemovedRows, count: int, model: Model) -> RemovedRows:
        """Return the rows whose own label has the smallest margin in the model.

        Args:
            remaining: the rows to choose from, which were not erased before.
            count: how many rows to choose; fewer are returned if fewer remain.
            model: the present model.
        """
        margins = model.margins(self.train.features[remaining])
        labels = self.train.labels[remaining]
        smallest_first = np.argsort(margins_of_labels(margins, labels), kind="stable")
        return remaining[smallest_first[:count]]

    def _rows_of_overruled_member(
        self, remaining: RemovedRows, count: int, model: Model
    ) -> RemovedRows:
        """Return rows of the shard whose member disagrees with the vote most often.

        An attacker who knows the public hash key knows which records are in this shard.

        Args:
            remaining: the rows to choose from, which were not erased before.
            count: how many rows to choose; fewer are returned if the shard has fewer.
            model: the present model.
        """
        queries = self.train.features[self.erasable[:MAX_CANDIDATES]]
        vote = model.predict(queries)
        margins = model.member_margins(queries)
        labels = np.stack([labels_of(of_member.T) for of_member in margins])
        share_overruled = (labels != vote).mean(axis=1)
        shard = assign_shards(self.train.units[remaining], model.settings.ensemble)
        return remaining[shard == int(np.argmax(share_overruled))][:count]
