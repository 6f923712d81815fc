"""Neighbours built to hurt, as ``agt audit certificate`` builds them, of settings drawn at random."""

from dataclasses import dataclass, replace

import numpy as np
from adversary_settings import Data, Setting

from agt.audit.neighbours import NAMES, Edited, Editor, Target, Terms, weights
from agt.data.dataset import Records, content_ids
from agt.training.batches import BatchPlan
from agt.training.ensemble import EnsembleConfig


@dataclass(frozen=True)
class Neighbour:
    """An edited dataset, as it is trained on."""

    data: Data
    edited: Edited

    @classmethod
    def unedited(cls, data: Data) -> "Neighbour":
        """The data itself."""
        return cls(data, Edited(data.records))

    @property
    def distance(self) -> int:
        """Within how many k."""
        return self.edited.distance

    @property
    def story(self) -> tuple[str, ...]:
        """How it came about."""
        return self.edited.story


class DrawnEditor(Editor):
    """Makes neighbours of ``setting``, in another order of rows; of identical content, numbered, where it names so."""

    def __init__(self, setting: Setting, rng: np.random.Generator) -> None:
        training, case = setting.case.config(), setting.case
        plan, wide = BatchPlan.of(training.batch, training.epochs, None, case.n), np.ones(case.width)
        ensemble, weight = EnsembleConfig(setting.members), weights(training, plan)
        super().__init__(
            Terms(setting.relation, case.unit_rows, case.classes, plan, weight, ensemble, -wide, wide, setting.boxes), rng
        )
        self.setting = setting

    def further(self, of: Neighbour, target: Target) -> Neighbour:
        """One k further."""
        edited = self.step(of.edited, target)
        return Neighbour(Data(self.named(edited.records), of.data.test).shuffled(self.rng), edited)

    def named(self, records: Records) -> Records:
        """The records under the ids that their content gives them, where the setting has it so."""
        if not self.setting.content:
            return records
        ids = content_ids(records.features, records.labels)
        return replace(records, ids=ids, units=ids.copy())

    def _named(self, rows: Records, name: str | None, keep: bool) -> list[Records]:
        """Content ids follow the content: it is varied in its last digits, unless it is to stay as it is."""
        if not self.setting.content:
            return super()._named(rows, name, keep)
        tries = 1 if keep else NAMES
        variants = [replace(rows, features=rows.features * (1 + i * 2.0**-40)) for i in range(tries)]
        return [replace(each, units=content_ids(each.features, each.labels)) for each in variants]
