"""Forget sets to attack unlearning with: at random, by an adversary, and by somebody who looks at what is served."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.spatial.distance import cdist

from agt.audit.unlearning import Attack, Rows, Served
from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.models.model import Model
from agt.training.ensemble import shards

WIDE = 512  # features beyond so many are looked at through a random projection
LOOKED = 2_000  # records whose nearest neighbours are looked for


@dataclass(frozen=True)
class ForgetSets:
    """Forget sets of a run.

    Attributes:
        train: its training records.
        free: [f] rows that may go: private, and of identical ones the last, as agt unlearn takes them.
        seen: [n, d] their features, flat and not too wide.
        records: how many ask.
        trials: how many random sets.
        seed: of all that is drawn.
    """

    train: Records
    free: np.ndarray
    seen: np.ndarray
    records: int
    trials: int
    seed: int

    @classmethod
    def of(cls, train: Records, families: np.ndarray, records: int, trials: int, seed: int) -> "ForgetSets":
        """Of a run's training records.

        Args:
            families: [n] str, the same for identical records that nothing else tells apart.

        Raises:
            ConfigError: no record may go, or fewer than ask.
        """
        last = {name: row for row, name in enumerate(families.tolist())}
        free = np.array(sorted(row for row in last.values() if not train.public[row]), dtype=np.int64)
        if not len(free):
            raise ConfigError("there is nothing to forget: every training record is public")
        if records > len(free) - 2:
            raise ConfigError(
                f"audit.records={records}: {len(free)} training records may go, and two must be left to train on: give "
                f"{max(1, len(free) - 2)} or fewer"
            )
        flat = np.asarray(train.features).reshape(len(train), -1).astype(np.float64)
        if flat.shape[1] > WIDE:
            flat = flat @ np.random.default_rng(seed).normal(size=(flat.shape[1], WIDE)) / np.sqrt(WIDE)
        return cls(train, free, flat, records, trials, seed)

    def attacks(self, by_shard: bool = False) -> Iterator[Attack]:
        """All of them.

        Args:
            by_shard: who looks chooses records of one member's shard, of an ensemble whose shards are kept; else those that
                what is served answers most wrongly.
        """
        rng, k = np.random.default_rng(self.seed), self.records
        for trial in range(self.trials):
            yield Attack(f"{k} records at random, draw {trial + 1}", (_always(rng.choice(self.free, k, replace=False)),))
        lever, error = self._influence()
        yield Attack(f"the {k} most influential records", (_always(self._top(lever * error**2 / (1 - lever) ** 2)),))
        yield Attack(f"the {k} farthest outliers", (_always(self._top(lever)),))
        yield Attack(f"{k} records whose nearest doubles stay", (_always(self._doubled(rng)),))
        yield Attack("a whole class, the smallest", (_always(self._class()),))
        if k > 1:
            first = rng.choice(self.free, k // 2, replace=False)
            then = self._dissenting if by_shard else self._wrong
            yield Attack(
                f"{k // 2} at random, then {k - k // 2} chosen by what is served then",
                (_always(first), partial(then, first, k - k // 2)),
            )

    def _top(self, scores: np.ndarray) -> Rows:
        return self.free[np.argsort(-scores[self.free], kind="stable")[: self.records]]

    def _influence(self) -> tuple[np.ndarray, np.ndarray]:
        """([n] leverages, [n] errors) of least squares on the classes: what deleting a record moves that by."""
        x = np.column_stack([self.seen, np.ones(len(self.seen))])
        y = np.eye(int(self.train.labels.max()) + 1)[self.train.labels]
        gram = x.T @ x + 1e-3 * np.trace(x.T @ x) / x.shape[1] * np.eye(x.shape[1])
        solved = np.linalg.solve(gram, x.T)
        lever = np.clip(np.einsum("nd,dn->n", x, solved), 0, 1 - 1e-9)
        return lever, np.linalg.norm(y - x @ (solved @ y), axis=1)

    def _doubled(self, rng: np.random.Generator) -> Rows:
        """Those of some that have the nearest neighbour with the same label, which stays."""
        some = rng.choice(self.free, min(LOOKED, len(self.free)), replace=False)
        away = cdist(self.seen[some], self.seen[some])
        away[self.train.labels[some][:, None] != self.train.labels[some]] = np.inf
        np.fill_diagonal(away, np.inf)
        chosen_rows, kept = list[int](), set[int]()
        for place in np.argsort(away.min(axis=1)).tolist():
            if len(chosen_rows) < self.records and place not in kept:
                chosen_rows.append(place)
                kept.add(int(away[place].argmin()))
        return some[chosen_rows]

    def _class(self) -> Rows:
        """All of the smallest class; of two classes all but one record, as a model needs both."""
        labels, counts = np.unique(self.train.labels[self.free], return_counts=True)
        rows = self.free[self.train.labels[self.free] == labels[counts.argmin()]]
        return rows if len(np.unique(self.train.labels)) > 2 else rows[:-1]

    def _wrong(self, first: Rows, count: int, served: Served | None) -> Rows:
        """Those whom the model that is served answers most wrongly."""
        left = self.free[~np.isin(self.free, first)]
        assert served is not None
        model: Model = served.shown
        margins, labels = model.margins(self.train.features[left]), self.train.labels[left]
        own = margins[0] * (2 * labels - 1) if len(margins) == 1 else margins[labels, np.arange(len(left))]
        return left[np.argsort(own, kind="stable")[:count]]

    def _dissenting(self, first: Rows, count: int, served: Served | None) -> Rows:
        """Those of one shard: of the member that the vote overrules most often, whoever knows the key can tell them."""
        assert served is not None
        model, left = served.shown, self.free[~np.isin(self.free, first)]
        some = self.train.features[self.free[:LOOKED]]
        vote = model.predict(some)
        dissent = [float((member.predict(some) != vote).mean()) for member in model.members]
        home = shards(self.train.units[left], model.settings.ensemble)
        return left[home == int(np.argmax(dissent))][:count]


def _always(rows: Rows) -> Callable[[Served | None], Rows]:
    return lambda served: rows
