"""``certificate=box``: a network of any layers, trained with a box of parameters for every k."""

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
from agt.models.model import ModelDefaults
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
from agt.training.setup import TrainingSetup
from agt.training.strength import refuse_recipe

GIVEN_THE_DRAW = proved("given_the_draw")
"""The fact of condition d where the bounds hold for the noise that was drawn."""
QUERY_BLOCK_ROWS = 8192
T = TypeVar("T")


@dataclass(frozen=True)
class BoxModel(ModelDefaults):
    """A network with nominal parameters, and bounds on every neighbour's parameters for every k.

    Attributes:
        head: the layers; the parameters that they hold themselves are not used.
        box: the nominal parameters and their bounds.
        plan: the batch plan of training.
    """

    head: nn.Sequential
    box: Box
    plan: BatchPlan

    @property
    def boxed_network(self) -> "BoxModel":
        """The model itself."""
        return self

    def save(self, store: FileWriter) -> None:
        """Write model.safetensors and bounds/; of a network of the user's own, network.json too."""
        if self.settings.model.facts:
            store.write(NETWORK, as_json(describe_layers(self.head)))
        write_boxes(store, self.box)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What is known of conditions a to g; under noise, given the noise that was drawn."""
        return assess_problem(self.problem, self.plan)

    @property
    def noise(self) -> NoisePlan | None:
        """The noise in each step of training; None: no noise."""
        return _plan_step_noise(self.settings, self.plan, self._parameters)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The numbers of parameters and of k, the largest k, and the noise of training."""
        metrics: dict[str, float | int | str] = {
            "parameters": self._parameters,
            "k_count": len(self.box.ks),
            "k_max": self.box.ks[-1],
        }
        noise = self.noise
        if noise is not None:
            metrics["noise_sigma"] = noise.sigma
            metrics["noise_mu"] = noise.mu
        return metrics

    @property
    def _parameters(self) -> int:
        """The number of scalar parameters."""
        return sum(tensor.numel() for tensor in self.box.nominal.values())

    @property
    def max_distance(self) -> int:
        """The last k of the grid, which no stable distance exceeds."""
        return self.box.ks[-1]

    def check(self, features: np.ndarray) -> None:
        """Refuse queries that the network cannot take.

        Raises:
            ConfigError: the queries have another shape than the records.
            UnsoundError: a query is not finite in the model's precision.
        """
        self._network().check_record_shape(features.shape[1:], self.box.nominal, "inputs: a query")
        # ``Blocks`` hold finite numbers, and these stay finite unless the precision gets smaller.
        keeps_finite = features.dtype == np.float32 or self.settings.training.dtype == "float64"
        if keeps_finite and isinstance(features, Blocks):
            features = features[:0]
        # Called only because it raises where a query is not finite.
        for _ in self._for_blocks(features, lambda queries: None):
            pass

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the nominal labels of queries, [n] int64."""
        network = self._network()

        def predict_block(queries: Tensor) -> np.ndarray:
            return network.predict(queries, self.box.nominal).numpy().astype(np.int64)

        return gathered(self._for_blocks(features, predict_block), len(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the nominal margins of queries: of two classes [1, n], else [C, n].

        Of two classes it is one output less its threshold, or the difference of two outputs; of
        more, each logit less the largest of the others.
        """
        network = self._network()

        def logits_of_block(queries: Tensor) -> np.ndarray:
            return network.logits(queries, self.box.nominal).numpy()

        logits = gathered(self._for_blocks(features, logits_of_block), len(features))
        return signed_margins(logits - network.loss.threshold)

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return the sigmoid or softmax of the nominal outputs, [n, C]."""
        return logistic_shares(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Certify queries against the box of every k.

        Args:
            features: [n, ...] the queries.
            ks: certify at these k of the grid alone; None: at the whole grid.
            on_progress: called after every block of queries.
        """
        return certify(self.head, self.problem.setup, self._select_box(ks), features, on_progress)

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Return bounds on the margin of two classes over the box of every k.

        Args:
            features: [n, ...] the queries.
            ks: bound the margin at these k of the grid; None: at the whole grid.
        """
        return compute_envelope(self.head, self.problem.setup, self._select_box(ks), features)

    def _select_box(self, ks: tuple[int, ...] | None) -> Box:
        """Return the box at some k of the grid; None: the box at all of them."""
        return self.box if ks is None else self.box.select_ks(ks)

    def _network(self) -> Network:
        """Return the head's layers and loss, through which points and boxes pass."""
        return Network.from_head(self.head, self.settings.training.loss, self.problem.classes)

    def _for_blocks(self, features: np.ndarray, compute: Callable[[Tensor], T]) -> Iterable[T]:
        """Return what is computed from each block of queries, in their order.

        All processes share the work. The result can be iterated once; there is at least one block,
        which may be empty.

        Args:
            features: [n, ...] the queries.
            compute: called with a block of queries, in the model's precision.

        Raises:
            UnsoundError: a query is not finite in the model's precision.
        """
        dtype = self.settings.training.dtype

        def compute_rows(rows: slice) -> T:
            block = np.array(features[rows], order="C")  # a copy: features may be read-only
            queries = torch.from_numpy(block).to(getattr(torch, dtype))
            return compute(check_queries(queries, dtype))

        return group().shared(len(features), QUERY_BLOCK_ROWS, compute_rows)


def assess_boxes(
    dataset: Dataset, setup: TrainingSetup, plan: BatchPlan, choices: Fact
) -> tuple[Condition, ...]:
    """Return what is known of conditions a to g of one training with boxes, in this order.

    Args:
        dataset: what is known of the data.
        setup: how the model is trained.
        plan: the batch plan of training.
        choices: the fact that says what the settings were chosen on.
    """
    facts = box_facts(setup.relation, setup.kgrid, setup.training.product, setup.training.dtype)
    return assess(
        dataset,
        setup,
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
    """Return what the settings alone decide of conditions a, d and f.

    Args:
        relation: which datasets are neighbours.
        kgrid: the values of k.
        product: how bounds are multiplied, as in ``TrainingConfig``.
        dtype: the precision, as in ``TrainingConfig``.

    Returns:
        The letter of a condition -> its fact.
    """
    every_k = proved("grid_dense", last=kgrid.ks[-1]) if kgrid.dense else not_held("grid_sparse")
    if RELATIONS[relation.name].reason_not_nested:
        nesting = not_held("boxes_do_not_nest", relation=relation.name)
    else:
        nesting = proved("boxes_nest")
    if product == "exact":
        rounding = proved("bounds_widened", dtype=dtype)
    else:
        rounding = not_held("product_not_nested")
    return {"a": every_k, "d": nesting, "f": rounding}


def assess_problem(problem: Problem, plan: BatchPlan | None = None) -> tuple[Condition, ...]:
    """Return what is known of conditions a to g of a network with boxes, before it is trained.

    Args:
        problem: the data and the settings.
        plan: the batch plan of training; None: the problem's own. That of an ensemble's member is
            for its share of the records.
    """
    settings = problem.settings
    if plan is None:
        plan = problem.plan
    further_facts = {"e": settings.model.facts}
    if settings.noise is not None:
        further_facts["d"] = (GIVEN_THE_DRAW,)
    conditions = assess_boxes(problem.dataset, problem.setup, plan, settings.choices)
    return tuple(
        condition.with_facts(*further_facts.get(condition.letter, ())) for condition in conditions
    )


def copy_initial_parameters(head: nn.Sequential, initial: Mapping[str, Tensor]) -> bool:
    """Copy given parameters into the trained layers of a head, if all of them fit.

    Args:
        head: the layers, which are changed.
        initial: ``weight.0``, ``bias.0``, ``weight.1``, ... -> the parameters of the first trained
            layer, the second, and so on.

    Returns:
        False if a name is missing or too many, or a shape differs; the head is then unchanged.
    """
    layers = [layer for layer in head if isinstance(layer, nn.Linear | nn.Conv2d)]
    parameters: dict[str, Tensor] = {}
    for index, layer in enumerate(layers):
        parameters[f"weight.{index}"] = layer.weight
        if layer.bias is not None:
            parameters[f"bias.{index}"] = layer.bias
    if parameters.keys() != initial.keys():
        return False
    if any(parameter.shape != initial[name].shape for name, parameter in parameters.items()):
        return False
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(initial[name])
    return True


def build_starting_head(problem: Problem) -> nn.Sequential:
    """Return the layers with the parameters that training begins at.

    These are the problem's initial parameters if they fit the layers, else those of the seed.
    """
    head = _build_head(problem)
    copy_initial_parameters(head, problem.initial or {})
    return head


def _build_head(problem: Problem) -> nn.Sequential:
    """Return the layers with the parameters that the seed makes."""
    record_shape = problem.dataset.train.features.shape[1:]
    settings = problem.settings
    return settings.model.build(record_shape, problem.classes, settings.training)


def _plan_step_noise(settings: Settings, plan: BatchPlan, parameters: int) -> NoisePlan | None:
    """Return how much noise each step of training adds; None: no noise.

    Args:
        settings: the noise, the relation and the clip level.
        plan: the batch plan of training.
        parameters: the number of scalar parameters.
    """
    if settings.noise is None:
        return None
    relation = settings.relation
    rule = RELATIONS[relation.name]
    sensitivity = rule.step_sensitivity(
        settings.training.clip, parameters, plan.normalizer, relation.unit_rows
    )
    return plan_noise(settings.noise, sensitivity, plan.epochs)


def _make_noise(problem: Problem, head: nn.Module, checkpoints: Checkpoints) -> Noise | None:
    """Return the function that draws the noise of each step of ``train``; None: no noise.

    A seed that the settings do not give is drawn once and stored with the checkpoints, so that a
    resumed training draws the same noise; without checkpoints it is stored nowhere.
    """
    config = problem.settings.noise
    parameters = {name: parameter.detach() for name, parameter in head.named_parameters()}
    parameter_count = sum(parameter.numel() for parameter in parameters.values())
    plan = _plan_step_noise(problem.settings, problem.plan, parameter_count)
    if config is None or plan is None:
        return None
    if config.seed is not None:
        seed = noise_seed(config)
    else:
        seed = checkpoints.draw_once(SEED, lambda: noise_seed(config))
    return lambda step: draw_noise(parameters, plan, seed, step)


@schema
class BoxKind(CertificateKind):
    """Certificates from boxes of parameters, for any head and any relation of records.

    Sections 1 to 3 of docs/method.md describe the method.
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
        """Return the training settings that a user has to give for a network of several layers.

        They have no defaults, because none served all datasets of docs/start.md.
        """
        if head.linear:
            return ()
        return tuple(name for name in ("epochs", "lr", "clip") if name not in given)

    def check(self, settings: Settings) -> None:
        """Refuse settings that boxes do not cover.

        Raises:
            ConfigError: a setting is left to the recipe, the relation is one of labels alone, or
                there is noise in an ensemble or under a relation of removals.
        """
        refuse_recipe(settings.training, self.name)
        relation = RELATIONS[settings.relation.name]
        relation.check_head(counts_label_flips=False, unit_rows=settings.relation.unit_rows)
        if settings.noise is None:
            return
        if settings.ensemble.members > 1:
            raise ConfigError(
                "noise.epsilon: the weights of an ensemble are not released, because it "
                f"answers by vote (ensemble.members={settings.ensemble.members}), so noise on "
                "them has no use: leave the noise out, or train one model"
            )
        relation.check_noise()
        # Called only because it raises where the relation has no sensitivity.
        relation.step_sensitivity(settings.training.clip, 1, 1.0)

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> BoxModel:
        """Train a network with bounds for every k.

        It starts from the problem's initial parameters if they fit.

        Raises:
            ConfigError: a layer, loss, batch or public record that the relation does not support.
            UnsoundError: a bound became NaN, infinite or inverted.
        """
        head = build_starting_head(problem)
        noise = _make_noise(problem, head, checkpoints)
        box = train(
            head, problem.setup, problem.dataset.train, on_progress, noise, checkpoints=checkpoints
        )
        return BoxModel(problem, head, box, problem.plan)

    def load(self, problem: Problem, reader: FileReader) -> BoxModel:
        """Read the network and its boxes back.

        Raises:
            ConfigError: a file is missing, or is not what was written.
            UnsoundError: a bound is not finite or inverted, or does not fit the settings.
        """
        head = _build_head(problem)
        expected = {name: tensor.detach() for name, tensor in head.state_dict().items()}
        box = read_boxes(reader, problem.settings.kgrid.ks, expected)
        return BoxModel(problem, head, box, problem.plan)

    def allocating_shapes_only(self) -> AbstractContextManager[object]:
        """Return PyTorch's meta device: ``load`` needs nothing but the shapes of a new head."""
        return torch.device("meta")

    def starts_elsewhere(self, problem: Problem) -> bool:
        """Return whether initial parameters are given that do not fit the layers of the head."""
        if not problem.initial:
            return False
        return not copy_initial_parameters(_build_head(problem), problem.initial)

    def training_inputs(self, problem: Problem) -> dict[str, object]:
        """Return a hash of the parameters that training begins at.

        Code of the user's own may make them, so that settings alone do not determine them.
        """
        state = build_starting_head(problem).state_dict()
        content = save({name: tensor.contiguous() for name, tensor in state.items()})
        return {"the initial parameters": sha256(content).hexdigest()}

    def distances_differ_by_one(self, settings: Settings) -> bool:
        """Return whether it is proved that neighbours' stable distances differ by at most 1.

        It is, where boxes of neighbours nest (Lemma 2 of docs/proofs/boxes.md). Boxes are proved to
        nest with exact products (not with Rump's, whose last digits may not), and where an edit
        removes or adds records (not where features move, as a moved record may move again).
        """
        edits_whole_records = RELATIONS[settings.relation.name].edits_whole_records
        return settings.training.product == "exact" and edits_whole_records
