"""Neighbours built to hurt: who leaves, who comes, and under which name, so that the keyed hash places it badly."""

from dataclasses import dataclass, replace

import numpy as np
from adversary_settings import Data, Setting
from checks import concatenate, draw
from synthetic import make_records

from agt.data.dataset import Records
from agt.data.ids import content_ids
from agt.training.batches import BatchPlan
from agt.training.ensemble import EnsembleConfig, shards
from agt.training.optimizer import learning_rate


@dataclass(frozen=True)
class Target:
    """A query whose label an attack is after."""

    query: np.ndarray
    label: int
    distance: int


@dataclass(frozen=True)
class Neighbour:
    """An edited dataset, at most ``distance`` away, and how it came about."""

    data: Data
    distance: int = 0
    story: tuple[str, ...] = ()


class Editor:
    """Makes neighbours of ``setting``, one step of its relation at a time."""

    def __init__(self, setting: Setting, rng: np.random.Generator) -> None:
        self.setting, self.rng, self.made = setting, rng, 0
        training = setting.case.config()
        plan = BatchPlan.of(training.batch, training.epochs, None, setting.case.n)
        self.plan = replace(plan, n_max=2**20)  # a probe of many names is no batch
        rates = [learning_rate(training, step) for step in range(plan.steps)]
        kept = np.array([1 - rate * training.weight_decay for rate in rates])
        self.weight = np.array([rate * kept[step + 1 :].prod() for step, rate in enumerate(rates)])

    def step(self, of: Neighbour, target: Target) -> Neighbour:
        """One k further: what the relation counts as one."""
        records, relation = of.data.records, self.setting.relation
        gone, come = True, not relation.startswith("remove") and relation != "paper_unlearning"
        if relation == "add_remove":
            gone = self.rng.random() < 0.4
            come = not gone
        if relation in ("substitute", "paper_privacy"):  # one side alone is within one k too (relations.py)
            gone, come = ((True, True), (True, True), (True, True), (True, False), (False, True))[self.rng.integers(5)]
        leaving, why = self._leaving(records, target) if gone else (None, "")
        kept = records if leaving is None else records.take(records.units != leaving)
        story = [f"less {why}"] if leaving is not None else []
        if come:
            newcomer, what = self._newcomer(records, leaving, target)
            kept = concatenate(kept, newcomer)
            story.append(f"plus {what}")
        data = Data(self.named(kept), of.data.test).shuffled(self.rng)
        return Neighbour(data, of.distance + 1, (*of.story, " ".join(story) or "nobody"))

    def named(self, records: Records) -> Records:
        """The records under the ids that their content gives them, where the setting has it so."""
        if not self.setting.content:
            return records
        ids = content_ids(records.features, records.labels)
        return replace(records, ids=ids, units=ids.copy())

    def _leaving(self, records: Records, target: Target) -> tuple[str | None, str]:
        """A private unit: any, the one that speaks most for the target's label, or the one that weighs most."""
        units = np.unique(records.units[~records.public])
        if not len(units):
            return None, ""
        way = str(self.rng.choice(["any", "best", "heaviest"]))
        if way == "any":
            return str(self.rng.choice(units)), "any"
        if way == "heaviest":
            return str(units[self._reach(units).argmax()]), way
        lengths = np.maximum(np.abs(records.features).max(axis=1), 1e-300)
        along = (records.features / lengths[:, None]) @ target.query
        speaks = np.where(records.labels == target.label, along, -along)
        return str(max(units, key=lambda unit: speaks[records.units == unit].sum())), way

    def _newcomer(self, records: Records, leaving: str | None, target: Target) -> tuple[Records, str]:
        """A unit of new rows, under a name that the keyed hash sends where it hurts."""
        case, rng = self.setting.case, self.rng
        self.made += 1
        prefix = f"n{self.made}-"
        way = str(rng.choice(["against", "against", "against", "saturating", "mixed", "copy", "zero", "huge"]))
        if way in ("saturating", "mixed"):
            rows = draw(rng, replace(case, public=0.0), 1, prefix, way)
        else:
            features, label = self._rows(way, records, target)
            count = case.unit_rows if way == "against" else int(rng.integers(1, case.unit_rows + 1))
            features = np.tile(features, (count, 1))
            rows = make_records(features, [label] * count, [f"{prefix}0"] * count, prefix=f"{prefix}row")
        return self._placed(rows, leaving, keep=way in ("copy", "zero"))

    def _rows(self, way: str, records: Records, target: Target) -> tuple[np.ndarray, int]:
        case, rng = self.setting.case, self.rng
        others = [c for c in range(case.classes) if c != target.label]
        if way == "copy" and len(records):
            row = int(rng.integers(len(records)))
            label = int(records.labels[row]) if rng.random() < 0.5 else int(rng.integers(case.classes))
            return records.features[row], label
        if way in ("copy", "zero"):
            return np.zeros(case.width), int(rng.integers(case.classes))
        if way == "huge":
            return rng.choice([-1.0, 1.0], case.width) * float(rng.choice([1e6, 1e15, 1e30])), int(rng.choice(others))
        direction = np.sign(target.query) if self.setting.boxes and rng.random() < 0.7 else target.query
        size = float(rng.choice([1.0, 30.0, 1e4]))
        if rng.random() < 0.3:  # from the other side: the same pull, were it not for the bias
            return -direction * size, target.label
        return direction * size, int(rng.choice(others))

    def _placed(self, rows: Records, leaving: str | None, keep: bool) -> tuple[Records, str]:
        """``rows`` under the best of several names: the leaver's own, elsewhere than its, or where steps weigh most.

        Content ids follow the content: it is varied in its last digits, unless it is to stay as it is.
        """
        rng, name = self.rng, str(rows.units[0])
        way = str(rng.choice(["any", "heaviest", *(["elsewhere", "elsewhere", "same"] if leaving is not None else [])]))
        if way == "same" and not self.setting.content:
            return replace(rows, units=np.full(len(rows), leaving)), "under the same name"
        tries = 1 if keep and self.setting.content else 24
        if self.setting.content:
            variants = [replace(rows, features=rows.features * (1 + i * 2.0**-40)) for i in range(tries)]
            names = np.array([content_ids(v.features, v.labels)[0] for v in variants])
        else:
            names = np.array([f"{name}.{i}" for i in range(tries)])
            variants = [replace(rows, units=np.full(len(rows), n)) for n in names]
        score = self._reach(names)
        if way == "any":
            score = np.arange(tries) == 0
        if way == "elsewhere":
            score = score / (1 + score.max()) + self._elsewhere(names, str(leaving))
        return variants[int(np.argmax(score))], f"one {way}"

    def _steps(self, names: np.ndarray) -> np.ndarray:
        """[steps, names] bool: who takes part in which step."""
        return np.array([np.isin(np.arange(len(names)), rows) for rows in self.plan.batches(names)])

    def _reach(self, names: np.ndarray) -> np.ndarray:
        """[names] how far a constant gradient of each would move the parameters."""
        reach: np.ndarray = self.weight @ self._steps(names)
        return reach

    def _elsewhere(self, names: np.ndarray, leaving: str) -> np.ndarray:
        """[names] other shards, and shares of other batches, than the leaver's."""
        config = EnsembleConfig(self.setting.members)
        shard = shards(names, config) != shards(np.array([leaving]), config)
        batch: np.ndarray = (self._steps(names) != self._steps(np.array([leaving]))).mean(axis=0)
        return shard + batch
