"""A network of one smooth hidden layer, certified by the curvature of its loss: every k from one recursion (agt/tube)."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, assess_tube
from agt.certificates.envelope import REACH, Envelope
from agt.certificates.stability import ClosedForm
from agt.data.blocks import ROWS, gathered
from agt.data.dataset import Records
from agt.distributed import group
from agt.errors import UnsoundError
from agt.models.features import FeatureMap
from agt.models.heads import HeadConfig
from agt.models.store import FEATURES, MODEL, Shelf, Store, as_json, check_constants, read_tensors, write_tensors
from agt.numeric import labels_of, signed_margins
from agt.problem import Problem, Settings
from agt.relations import rows_at_stake
from agt.settings import TubeConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.loop import Progress, counted
from agt.training.sensitivity import LinearLoss, rows_moved
from agt.training.strength import numbers_of
from agt.tube.activations import SMOOTH
from agt.tube.network import TubeNetwork, start_norm
from agt.tube.setting import TubeSetting, schedule
from agt.tube.stability import certify_tube, envelope_tube
from agt.tube.training import TubeTrained, train_tube

RADII, TUBE = "radii.safetensors", "tube.json"


@dataclass(frozen=True)
class TubeModel:
    """A feature map, a network on top of it, and how far any k records move it (a ``models.model.Model``)."""

    problem: Problem
    features: FeatureMap
    network: TubeNetwork
    setting: TubeSetting
    trained: TubeTrained

    @classmethod
    def fit(
        cls,
        problem: Problem,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "TubeModel":
        """Train on the public features."""
        features = FeatureMap.of(_config(problem.settings).features, problem.dataset)
        return cls.untrained(problem, features).retrained(problem.dataset.train, on_progress, checkpoints)

    @classmethod
    def untrained(cls, problem: Problem, features: FeatureMap) -> "TubeModel":
        """The network before training: its public constants are those of any run.

        Raises:
            ConfigError: the configuration is one that no tube is proved for.
        """
        config, recipe, head = _config(problem.settings), problem.recipe, problem.settings.model
        assert isinstance(head, HeadConfig)  # Settings refused anything else
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
        on_progress: Callable[[Progress], None] = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "TubeModel":
        """The same network trained on these records, whose features are as the dataset scales them."""
        config, seed = _config(self.settings), self.settings.training.seed
        seen = records.seen_as(self.over(records.features))
        initial = self.network.initial(self.features.outputs, config.spread, seed)
        exact = config.norms == "exact"
        trained = train_tube(self.setting, self.network, initial, seen, self.counts, exact, on_progress, checkpoints)
        return replace(self, trained=trained)

    @classmethod
    def load(cls, problem: Problem, shelf: Shelf) -> "TubeModel":
        """Read the network and its radii back, and check that its constants are those that its configuration implies.

        Raises:
            ConfigError: a file is missing, or the configuration is one that no tube is proved for.
            UnsoundError: the recorded constants are not the configuration's, or the radii are none.
        """
        width = int(np.prod(problem.dataset.train.features.shape[1:]))
        blank = FeatureMap.blank(_config(problem.settings).features, width)
        model = cls.untrained(problem, blank.with_matrices(read_tensors(shelf, FEATURES, blank.matrices)))
        weight = read_tensors(shelf, MODEL, {"weight": model.trained.weight})["weight"]
        like = {"radii": torch.from_numpy(model.trained.radii)}
        radii = read_tensors(shelf, RADII, like, finite=False)["radii"].numpy()
        check_constants(shelf, TUBE, model.constants)
        try:
            return replace(model, trained=TubeTrained(weight, radii, model.trained.reach))
        except UnsoundError as error:
            raise UnsoundError(f"{shelf.folder}/{RADII} or {MODEL}: {error}; train again") from None

    def save(self, store: Store) -> None:
        """model.safetensors, radii.safetensors, features.safetensors and tube.json."""
        write_tensors(store, MODEL, {"weight": self.trained.weight})
        write_tensors(store, RADII, {"radii": torch.from_numpy(self.trained.radii)})
        write_tensors(store, FEATURES, self.features.matrices)
        store.write(TUBE, as_json(self.constants))

    @property
    def settings(self) -> Settings:
        """The problem's."""
        return self.problem.settings

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
        return {**facts, **asdict(setting.loss), **bounds, "reach_of_weights": self.trained.reach, **self._settled}

    @property
    def _settled(self) -> dict[str, float | int]:
        """What the recipe decided, under ``recipe.NAME``; nothing where every setting was a number."""
        return numbers_of(self.setting.training, self.settings.training.by_recipe)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g."""
        problem, training, bounds = self.problem, self.setting.training, self.setting.curvature
        last, config = self.counts[-1], _config(self.settings)
        words = f"{self.plan.steps} steps, output weights and first weights from the public seed {training.seed}"
        curved = f"the loss's curvature at each step bounded from above ({config.norms}), to within a public slack"
        moves = f"{curved}; a record's gradient is at most {bounds.gradient:.4g}, and {bounds.pull:.4g} of curvature"
        taus = sum(public.tau for public in schedule(self.setting)[0])
        rounding = f"float64 sums: rounding adds {(2 * last + 2) * taus:.1e} to the radius of k = {len(self.counts) - 1}"
        return assess_tube(
            problem.dataset,
            problem.recipe,
            self.plan,
            words,
            moves,
            rounding,
            self.features.public,
            problem.settings.choices,
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
            **self._settled,
        }

    def phi(self, features: np.ndarray) -> np.ndarray:
        """[n, d] public features of norm at most 1."""
        return self.features(features, self.settings.training.dtype)

    def over(self, features: np.ndarray) -> np.ndarray:
        """The same of training records, for whoever takes slices of them again and again (``FeatureMap.over``)."""
        return self.features.over(features, self.settings.training.dtype, self.settings.compute.memory_mb)

    @property
    def farthest(self) -> int:
        """The end of the grid."""
        return len(self.counts) - 1

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError for queries of another width; whatever is finite has features."""
        self.phi(features[:0])

    def _logits(self, features: np.ndarray) -> np.ndarray:
        """[n, J] float64."""

        def work(rows: slice) -> np.ndarray:
            with torch.no_grad():
                x = torch.from_numpy(self.phi(features[rows])).double()
                return self.network.logits(self.trained.weight, x)[0].numpy()

        return gathered(group().shared(len(features), ROWS, work), len(features))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels."""
        return labels_of(self._logits(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[1, n] the logit, or logit difference, of two classes; else [classes, n] each logit less the best other."""
        return signed_margins(self._logits(features))

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """At every k of the grid as far as a margin vote looks, or at these."""
        some = tuple(k for k in (range(1, self.farthest + 1) if ks is None else ks) if 1 <= k <= REACH)
        return envelope_tube(self.setting, self.network, self.trained, self.counts, self.phi(features), some)

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Certificates:
        """Stable distances; at some k, tabulated there alone and no farther than the last."""
        relation, grid, count = self.settings.relation.name, ks or self.settings.kgrid.ks, len(features)

        def work(rows: slice) -> ClosedForm:
            phi = self.phi(features[rows])
            return certify_tube(self.setting, self.network, self.trained, self.counts, phi, relation, grid)

        known = ClosedForm.joined(group().shared(count, ROWS, work, counted(on_progress, count)), count)
        return known if ks is None else Certificates(grid, relation, known.prediction, np.asarray(known.certified))


def _config(settings: Settings) -> TubeConfig:
    if isinstance(settings.certificate, TubeConfig):
        return settings.certificate
    raise TypeError(f"{settings.certificate} is no tube's")


def _counts(settings: Settings) -> np.ndarray:
    ks = range(settings.kgrid.ks[-1] + 1)
    return np.array(rows_at_stake(ks, rows_moved(settings.relation)), dtype=np.int64)
