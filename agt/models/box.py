"""A head trained with parameter boxes: any layers, any relation."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from agt.bounds.box import Box
from agt.bounds.network import Network
from agt.certificates.box import Certificates, certify, check_queries, compute_envelope
from agt.certificates.conditions import Condition, assess, stated_constants
from agt.certificates.envelopes import Envelope
from agt.data.arrays import Blocks, gathered
from agt.data.dataset import Dataset
from agt.distributed import group
from agt.errors import ConfigError
from agt.facts import Fact, not_held, proved
from agt.models.heads import HeadBuilder, describe_layers
from agt.models.kind import CertificateKind
from agt.models.model import Trained
from agt.models.shares import logistic_shares
from agt.models.store import NETWORK, FileReader, FileWriter, read_boxes, write_boxes
from agt.numeric import signed_margins
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.settings import KGridConfig, RelationConfig, schema
from agt.store import as_json
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.loop import Noise, OnProgress, train
from agt.training.noise import SEED, NoisePlan, draw_noise, noise_seed, plan_noise
from agt.training.recipe import Recipe
from agt.training.strength import refuse_recipe

GIVEN_THE_DRAW = proved("given_the_draw")
BLOCK = 8192
T = TypeVar("T")


@dataclass(frozen=True)
class BoxModel(Trained):
    """The nominal head and its box for every k."""

    head: nn.Sequential
    box: Box
    plan: BatchPlan

    @property
    def boxed_network(self) -> "BoxModel":
        """Itself."""
        return self

    def save(self, store: FileWriter) -> None:
        """model.safetensors and bounds/; of a network of the user's own, network.json too."""
        if self.settings.model.facts:
            store.write(NETWORK, as_json(describe_layers(self.head)))
        write_boxes(store, self.box)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g; under noise, given the draw."""
        return conditions_of(self.problem, self.plan)

    @property
    def noise(self) -> NoisePlan | None:
        """The noise of each step; None without any."""
        return _noise_plan(self.settings, self.plan, self._parameters)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes, and the noise."""
        sizes = {
            "parameters": self._parameters,
            "k_count": len(self.box.ks),
            "k_max": self.box.ks[-1],
        }
        noise = {"noise_sigma": self.noise.sigma, "noise_mu": self.noise.mu} if self.noise else {}
        return {**sizes, **noise}

    @property
    def _parameters(self) -> int:
        return sum(tensor.numel() for tensor in self.box.nominal.values())

    @property
    def widths(self) -> int:
        """How many numbers of a record its layers hold, in and out."""
        return self._network().numbers_per_record(
            self.problem.dataset.train.features.shape[1:], self.box.nominal
        )

    @property
    def farthest(self) -> int:
        """The end of the grid."""
        return self.box.ks[-1]

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError for queries of another width, UnsoundError where one is not finite
        in the model's precision.
        """
        self._network().check_record_shape(features.shape[1:], self.box.nominal, "inputs: a query")
        # what is finite there stays so
        exact = features.dtype == np.float32 or self.settings.training.dtype == "float64"
        for _ in self._shared(
            features[:0] if exact and isinstance(features, Blocks) else features, lambda x: None
        ):
            pass

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels."""
        network = self._network()
        labels = self._shared(
            features, lambda x: network.predict(x, self.box.nominal).numpy().astype(np.int64)
        )
        return gathered(labels, len(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[1, n] one output less its threshold, or two's difference; else [classes, n] each
        logit less the best other.
        """
        network = self._network()
        logits = self._shared(features, lambda x: network.logits(x, self.box.nominal).numpy())
        return signed_margins(gathered(logits, len(features)) - network.loss.threshold)

    def shares(self, features: np.ndarray) -> np.ndarray:
        """[n, C] the sigmoid or softmax of the outputs."""
        return logistic_shares(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Certify against every box, or those of some k."""
        box = self.box if ks is None else self.box.select_ks(ks)
        return certify(self.head, self.problem.recipe, box, features, on_progress)

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Over every box, or those of some k."""
        return compute_envelope(
            self.head,
            self.problem.recipe,
            self.box if ks is None else self.box.select_ks(ks),
            features,
        )

    def _network(self) -> Network:
        return Network.from_head(self.head, self.settings.training.loss, self.problem.classes)

    def _shared(self, features: np.ndarray, of: Callable[[Tensor], T]) -> Iterable[T]:
        """What is made of the queries, a block at a time."""
        dtype = self.settings.training.dtype

        def work(rows: slice) -> T:
            block = np.array(features[rows], order="C")  # a copy: features may be read-only
            return of(check_queries(torch.from_numpy(block).to(getattr(torch, dtype)), dtype))

        return group().shared(len(features), BLOCK, work)


def assess_boxes(
    dataset: Dataset, recipe: Recipe, plan: BatchPlan, choices: Fact
) -> tuple[Condition, ...]:
    """Conditions a-g for one run with boxes; arguments as of ``assess``."""
    facts = box_facts(recipe.relation, recipe.kgrid, recipe.training.product, recipe.training.dtype)
    return assess(
        dataset,
        recipe,
        plan,
        choices,
        every_k=facts["a"],
        constants=stated_constants(plan, "steps_stated", steps=plan.steps),
        step=("inclusion-monotone rules", facts["d"]),
        rounding=facts["f"],
    )


def box_facts(
    relation: RelationConfig, kgrid: KGridConfig, product: str, dtype: str
) -> dict[str, Fact]:
    """Letter -> what the configuration alone decides of conditions a, d and f. product, dtype:
    as in ``TrainingConfig``.
    """
    nests = not RELATIONS[relation.name].reason_not_nested
    return {
        "a": proved("grid_dense", last=kgrid.ks[-1]) if kgrid.dense else not_held("grid_sparse"),
        "d": proved("boxes_nest")
        if nests
        else not_held("boxes_do_not_nest", relation=relation.name),
        "f": proved("bounds_widened", dtype=dtype)
        if product == "exact"
        else not_held("product_not_nested"),
    }


def conditions_of(problem: Problem, plan: BatchPlan | None = None) -> tuple[Condition, ...]:
    """Conditions a-g of a head trained on it, which are known before it is.

    Args:
        plan: that it trains by; None: the problem's own, which a member of an ensemble has a share
            of.
    """
    settings = problem.settings
    conditions = assess_boxes(
        problem.dataset, problem.recipe, plan or problem.plan, settings.choices
    )
    conditions = tuple(
        c.with_facts(*settings.model.facts) if c.letter == "e" else c for c in conditions
    )
    if settings.noise is None:
        return conditions
    return tuple(c.with_facts(GIVEN_THE_DRAW) if c.letter == "d" else c for c in conditions)


def start_from(head: nn.Sequential, initial: Mapping[str, Tensor]) -> bool:
    """Copy ``weight.0``, ``bias.0``, ``weight.1``, ... into the head's trained layers; False if
    a shape differs.
    """
    layers = [layer for layer in head if isinstance(layer, nn.Linear | nn.Conv2d)]
    pairs = [
        (getattr(layer, kind), f"{kind}.{i}")
        for i, layer in enumerate(layers)
        for kind in ("weight", "bias")
    ]
    if {name for _, name in pairs} != set(initial) or any(
        p.shape != initial[name].shape for p, name in pairs
    ):
        return False
    with torch.no_grad():
        for parameter, name in pairs:
            parameter.copy_(initial[name])
    return True


def starting_head(problem: Problem) -> nn.Sequential:
    """The head as training begins: from the problem's initial parameters where they fit it."""
    head = _head(problem)
    start_from(head, problem.initial or {})
    return head


def _head(problem: Problem) -> nn.Sequential:
    shape = problem.dataset.train.features.shape[1:]
    return problem.settings.model.build(shape, problem.classes, problem.settings.training)


def _noise_plan(settings: Settings, plan: BatchPlan, parameters: int) -> NoisePlan | None:
    """How much noise each step takes; None without any.

    Args:
        parameters: P, the number of scalar parameters trained.
    """
    if settings.noise is None:
        return None
    relation, clip = settings.relation, settings.training.clip
    rule = RELATIONS[relation.name]
    sensitivity = rule.step_sensitivity(clip, parameters, plan.normalizer, relation.unit_rows)
    return plan_noise(settings.noise, sensitivity, plan.epochs)


def _draws(problem: Problem, head: nn.Module, checkpoints: Checkpoints) -> Noise | None:
    """step -> name -> noise, for ``train``; None without any.

    The seed is kept with the checkpoints, or nowhere.
    """
    parameters = {name: p.detach() for name, p in head.named_parameters()}
    config, noise = (
        problem.settings.noise,
        _noise_plan(problem.settings, problem.plan, sum(p.numel() for p in parameters.values())),
    )
    if config is None or noise is None:
        return None
    seed = (
        noise_seed(config)
        if config.seed is not None
        else checkpoints.draw_once(SEED, lambda: noise_seed(config))
    )
    return lambda step: draw_noise(parameters, noise, seed, step)


@schema
class BoxKind(CertificateKind):
    """``certificate=box``: parameter boxes of any head, for any relation (method.md sections
    1-3).
    """

    name: Literal["box"] = "box"

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "loss": "cross_entropy",
        "epochs": 4,
        "lr": 2.0,
        "decay": 0.1,
        "clip": 0.06,
    }
    covers_retraining = True

    def missing_training(self, head: HeadBuilder, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what a network needs: no defaults were found that serve the sets of
        docs/start.md.
        """
        if head.linear:
            return ()
        return tuple(name for name in ("epochs", "lr", "clip") if name not in given)

    def check(self, settings: Settings) -> None:
        """Refuse what boxes do not cover.

        Raises:
            ConfigError: settings left to the recipe, a relation of labels alone, or noise in an
                ensemble or under a relation of removals.
        """
        refuse_recipe(settings.training, self.name)
        relation = RELATIONS[settings.relation.name]
        relation.check_head(counts_label_flips=False, unit_rows=settings.relation.unit_rows)
        if settings.noise is None:
            return
        if settings.ensemble.members > 1:
            raise ConfigError(
                f"noise.epsilon: ensemble.members={settings.ensemble.members}: the weights "
                "of an ensemble are not released, because it answers by vote: leave the "
                "noise out, or train one model"
            )
        relation.check_noise()
        relation.step_sensitivity(settings.training.clip, 1, 1.0)

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> BoxModel:
        """Train with bounds, from the problem's initial parameters where they fit the head."""
        head = starting_head(problem)
        noise = _draws(problem, head, checkpoints)
        box = train(
            head, problem.recipe, problem.dataset.train, on_progress, noise, checkpoints=checkpoints
        )
        return BoxModel(problem, head, box, problem.plan)

    def load(self, problem: Problem, reader: FileReader) -> BoxModel:
        """Read the boxes back."""
        head = _head(problem)
        like = {name: tensor.detach() for name, tensor in head.state_dict().items()}
        return BoxModel(
            problem, head, read_boxes(reader, problem.settings.kgrid.ks, like), problem.plan
        )

    def allocating_shapes_only(self) -> AbstractContextManager[object]:
        """Return PyTorch's meta device: of a head that is read back, its shapes are enough."""
        return torch.device("meta")

    def starts_elsewhere(self, problem: Problem) -> bool:
        """Return whether initial parameters do not fit the head, so that it starts from random
        ones.
        """
        return bool(problem.initial) and not start_from(_head(problem), problem.initial or {})

    def training_inputs(self, problem: Problem) -> dict[str, object]:
        """Return a hash of the parameters that training begins at: they may come from code of
        the user's own.
        """
        state = starting_head(problem).state_dict()
        content = save({name: tensor.contiguous() for name, tensor in state.items()})
        return {"the initial parameters": sha256(content).hexdigest()}

    def distances_differ_by_one(self, settings: Settings) -> bool:
        """Return whether the rules nest: by exact products, and where features stay as they are."""
        return (
            settings.training.product == "exact" and RELATIONS[settings.relation.name].moves_records
        )
