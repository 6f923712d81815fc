"""A network of one smooth hidden layer, certified by the curvature of its loss: every k from one recursion (agt/tube)."""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
import torch

from agt.certificates.box import REACH, Envelope
from agt.certificates.conditions import Condition, assess
from agt.certificates.stability import ClosedForm
from agt.data.dataset import Records
from agt.errors import UnsoundError
from agt.facts import proved
from agt.models.features import FeatureMap
from agt.models.heads import HeadConfig
from agt.models.linear import ClosedFormModel, read_features
from agt.models.store import FEATURES, MODEL, FileReader, FileWriter, as_json, check_constants, read_tensors, write_tensors
from agt.problem import Problem, Settings
from agt.relations import rows_at_stake
from agt.settings import TrainingConfig, TubeConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.linear import LinearLoss, rows_moved
from agt.training.loop import OnProgress
from agt.tube.network import SMOOTH, TubeNetwork, TubeSetting, schedule, start_norm
from agt.tube.training import TubeTrained, certify_tube, envelope_tube, train_tube

RADII, TUBE = "radii.safetensors", "tube.json"


@dataclass(frozen=True)
class TubeModel(ClosedFormModel):
    """A feature map, a network on top of it, and how far any k records move it."""

    network: TubeNetwork
    setting: TubeSetting
    trained: TubeTrained
    linear_head: ClassVar[None] = None

    @classmethod
    def untrained(cls, problem: Problem, features: FeatureMap) -> Self:
        """The network before training: its public constants are those of any run.

        Raises:
            ConfigError: the configuration is one that no tube is proved for.
        """
        config, recipe, head = (
            cast(TubeConfig, problem.settings.certificate),
            problem.recipe,
            cast(HeadConfig, problem.settings.model),
        )
        loss = LinearLoss.of(recipe.training, recipe.classes)
        network = TubeNetwork.of(loss, SMOOTH[head.activation], head.hidden[0], config.length, recipe.training.seed)
        initial = network.initial(features.outputs, config.spread, recipe.training.seed)
        setting = TubeSetting(
            loss,
            network.activation,
            network.outputs.numpy(),
            start_norm(initial),
            features.outputs,
            recipe.training,
            recipe.plan(problem.trained_on),
            recipe.relation,
            features.slack,
        )
        unknown = np.full(len(_counts(problem.settings)), np.inf)
        return cls(problem, features, network, setting, TubeTrained(initial, unknown, schedule(setting)[1]))

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """The same network trained on these records, whose features are as the dataset scales them."""
        config, seed = cast(TubeConfig, self.settings.certificate), self.settings.training.seed
        seen = records.seen_as(self.over(records.features))
        initial = self.network.initial(self.features.outputs, config.spread, seed)
        exact = config.norms == "exact"
        trained = train_tube(self.setting, self.network, initial, seen, self.counts, exact, on_progress, checkpoints)
        return replace(self, trained=trained)

    @classmethod
    def load(cls, problem: Problem, shelf: FileReader) -> Self:
        """Read the network and its radii back, and check that its constants are those that its configuration implies.

        Raises:
            ConfigError: a file is missing, or the configuration is one that no tube is proved for.
            UnsoundError: the recorded constants are not the configuration's, or the radii are none.
        """
        model = cls.untrained(problem, read_features(problem, shelf))
        weight = read_tensors(shelf, MODEL, {"weight": model.trained.weight})["weight"]
        like = {"radii": torch.from_numpy(model.trained.radii)}
        radii = read_tensors(shelf, RADII, like, finite=False)["radii"].numpy()
        check_constants(shelf, TUBE, model.constants)
        try:
            return replace(model, trained=TubeTrained(weight, radii, model.trained.reach))
        except UnsoundError as error:
            raise UnsoundError(f"{shelf.folder}/{RADII} or {MODEL}: {error}; train again") from None

    def save(self, store: FileWriter) -> None:
        """model.safetensors, radii.safetensors, features.safetensors and tube.json."""
        write_tensors(store, MODEL, {"weight": self.trained.weight})
        write_tensors(store, RADII, {"radii": torch.from_numpy(self.trained.radii)})
        write_tensors(store, FEATURES, self.features.matrices)
        store.write(TUBE, as_json(self.constants))

    @property
    def training(self) -> TrainingConfig:
        """How it was trained, with numbers for what the settings left to the recipe."""
        return self.setting.training

    @property
    def plan(self) -> BatchPlan:
        """The batch plan."""
        return self.setting.plan

    @cached_property
    def counts(self) -> np.ndarray:
        """[K + 1] int64: how many records k = 0..K move, K the end of the grid."""
        return _counts(self.settings)

    @property
    def constants(self) -> dict[str, float | int | str]:
        """The public numbers that the radii rest on, as in tube.json."""
        setting, relation = self.setting, self.settings.relation
        facts = {"certificate": "tube", "relation": relation.name, "unit_rows": relation.unit_rows}
        bounds = {**asdict(setting.curvature), "alpha": setting.alpha, "beta": setting.beta}
        return {**facts, **asdict(setting.loss), **bounds, "reach_of_weights": self.trained.reach, **self._recipe_numbers}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g."""
        problem, training, bounds = self.problem, self.setting.training, self.setting.curvature
        last, config = self.counts[-1], cast(TubeConfig, self.settings.certificate)
        words = f"{self.plan.steps} steps, output weights and first weights from the public seed {training.seed}"
        curved = f"the loss's curvature at each step bounded from above ({config.norms}), to within a public slack"
        moves = f"{curved}; a record's gradient is at most {bounds.gradient:.4g}, and {bounds.pull:.4g} of curvature"
        taus = sum(public.tau for public in schedule(self.setting)[0])
        rounding = f"float64 sums: rounding adds {(2 * last + 2) * taus:.1e} to the radius of k = {len(self.counts) - 1}"
        every = (
            f"one recursion has every integer k up to {self.settings.kgrid.ks[-1]}, the grid's end, whatever grid is shown"
        )
        return assess(
            problem.dataset,
            problem.recipe,
            self.plan,
            problem.settings.choices,
            every_k=proved(every),
            constants=words,
            step=("curvature moves as a neighbour does", proved(moves)),
            rounding=proved(f"{rounding}; norms, margins and distances carry their own"),
            features=self.features.public,
        )

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes, and how far the first and the last k move the network."""
        radii = self.trained.radii
        reached = max(0, int(np.isfinite(radii).sum()) - 1)
        moved = {"radius_at_1": float(radii[1])} if reached >= 1 else {}
        return {
            "parameters": self.trained.weight.numel(),
            "gradient_bound": self.setting.curvature.gradient,
            **moved,
            "k_with_radius": reached,
            "k_max": self.farthest,
            **self._recipe_numbers,
        }

    @property
    def farthest(self) -> int:
        """The end of the grid."""
        return len(self.counts) - 1

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """[n, J] float64, of public features [n, w]."""
        with torch.no_grad():
            return self.network.logits(self.trained.weight, torch.from_numpy(phi).double())[0].numpy()

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedForm:
        """Certificates of queries with these public features [n, w], tabulated at these k."""
        return certify_tube(self.setting, self.network, self.trained, self.counts, phi, self.settings.relation.name, ks)

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """At every k of the grid as far as a margin vote looks, or at these."""
        some = tuple(k for k in (range(1, self.farthest + 1) if ks is None else ks) if 1 <= k <= REACH)
        return envelope_tube(self.setting, self.network, self.trained, self.counts, self.phi(features), some)


def _counts(settings: Settings) -> np.ndarray:
    ks = range(settings.kgrid.ks[-1] + 1)
    return np.array(rows_at_stake(ks, rows_moved(settings.relation)), dtype=np.int64)
