"""``certificate=box``: a network of any layers, trained with a box of parameters for every k."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from agt.bounds.box import Box
from agt.bounds.network import Network
from agt.certificates.box import Certificates, certify, check_queries, compute_envelope
from agt.certificates.conditions import Condition, add_facts, assess, stated_constants
from agt.certificates.envelopes import Envelope
from agt.certificates.settings import BoxConfig
from agt.data.arrays import Blocks, gathered
from agt.data.dataset import Dataset
from agt.distributed import group
from agt.facts import Fact, not_held, proved
from agt.models.heads import HeadBuilder, describe_layers
from agt.models.kind import CertificateKind
from agt.models.model import Model
from agt.models.shares import logistic_shares
from agt.models.store import NETWORK, FileWriter, read_boxes, write_boxes
from agt.numeric import signed_margins
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.settings import KGridConfig, RelationConfig, schema
from agt.store.folder import Folder
from agt.store.json_text import Metrics, as_json
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.loop import Noise, OnProgress, ignore_progress, train
from agt.training.noise import SEED, NoisePlan, draw_noise, noise_seed, plan_noise
from agt.training.setup import TrainingSetup

GIVEN_THE_DRAW = proved("given_the_draw")
"""The fact that bounds hold only for neighbours that are trained with the same draw of noise.

It limits condition d of a privacy guarantee (bounds of neighbours are nested).
"""
QUERY_BLOCK_ROWS = 8192  # queries whose outputs are computed at once
T = TypeVar("T")


@dataclass(frozen=True)
class BoxModel(Model):
    """A trained network, with bounds on the parameters that training on other datasets would give.

    For each k of a grid, the bounds contain the parameters of every training on a dataset that
    differs from the training data by at most k edits (removed, added or changed records, as the
    neighbour relation says).

    Attributes:
        head: the layers; the parameters stored in them are not used.
        box: the nominal parameters (the result of training on the data itself), and for each k a
            lower and an upper bound on every parameter.
        batch_plan: the assignment of records to batches in the training.
    """

    head: nn.Sequential
    box: Box
    batch_plan: BatchPlan

    @property
    def plan(self) -> BatchPlan:
        """The plan of the batches that the network was trained on."""
        return self.batch_plan

    @property
    def boxed_network(self) -> "BoxModel":
        """The model itself, because it is one network with bounds on its parameters."""
        return self

    def save(self, store: FileWriter) -> None:
        """Write the nominal parameters and their bounds, and the layers of a user's own network.

        Args:
            store: receives model.safetensors (the parameters), one file in bounds/ for each k, and
                network.json (the layers) if the user gave the network.
        """
        # Only a network of the user's own has facts. The settings describe every other network.
        if self.settings.model.facts(self.settings.choices):
            store.write(NETWORK, as_json(describe_layers(self.head)))
        write_boxes(store, self.box)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy guarantee, each with the evidence for or against it.

        They are conditions a to g of docs/method.md, in this order.
        """
        return assess_problem(self.problem, self.plan)

    @property
    def noise(self) -> NoisePlan | None:
        """The amount of noise that each training step added; None: training added no noise."""
        return _plan_step_noise(self.settings, self.plan, self._parameters)

    @property
    def metrics(self) -> Metrics:
        """The facts about the model that a run records as metrics: name -> value.

        They are the number of scalar parameters, for how many numbers of edits k there are bounds,
        and the largest k. If training added noise, they include its standard deviation (sigma) and
        the parameter mu of the Gaussian differential privacy that it gives.
        """
        metrics: Metrics = {
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
        """An upper bound on every stable distance (the edits that a label is proved to withstand).

        It is the largest number of edits k for which there are bounds on the parameters.
        """
        return self.box.ks[-1]

    def check(self, features: np.ndarray) -> None:
        """Raise an error if the network cannot be applied to queries.

        Args:
            features: [n, ...] the queries, scaled as the training records were.

        Raises:
            ConfigError: a query has another shape than a training record.
            UnsoundError: a query is NaN, or infinite after conversion to the model's precision.
        """
        self._network().check_record_shape(features.shape[1:], self.box.nominal, "inputs: a query")
        # ``Blocks`` read features from a file, which are finite already. A finite number can become
        # infinite only when float64 is converted to float32. In all other cases the file need not
        # be read here.
        to_float32 = self.settings.training.dtype == "float32"
        may_overflow = to_float32 and features.dtype != np.float32
        if isinstance(features, Blocks) and not may_overflow:
            features = features[:0]
        # Nothing is computed from the blocks: taking each one raises if a query is not finite.
        for _ in self._map_blocks(features, lambda queries: None):
            pass

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the labels that the trained network gives to queries.

        Args:
            features: [n, ...] the queries.

        Returns:
            [n] int64 class indices.
        """
        network = self._network()
        blocks = self._map_blocks(
            features, lambda queries: network.predict(queries, self.box.nominal).numpy()
        )
        return gathered(blocks, len(features)).astype(np.int64)

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the signed margins of queries under the trained network.

        Args:
            features: [n, ...] the queries.

        Returns:
            For two classes [1, n]: the output minus the threshold of the loss, or the second
            output minus the first; positive where class 1 is predicted. For C > 2 classes [C, n]:
            each logit minus the largest logit of another class.
        """
        network = self._network()
        blocks = self._map_blocks(
            features, lambda queries: network.logits(queries, self.box.nominal).numpy()
        )
        logits = gathered(blocks, len(features))
        # A loss of one output predicts class 1 above its threshold, so margins are 0 there.
        return signed_margins(logits - network.loss.threshold)

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return the predicted probability of each class, [n, C] (sigmoid or softmax).

        Args:
            features: [n, ...] the queries.
        """
        return logistic_shares(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Certificates:
        """Return the labels of queries, and which of them provably withstand k edits of the data.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits k to certify for, a subset of those for which there are bounds
                on the parameters; None: all of them.
            on_progress: called after every block of queries.

        Returns:
            The labels [n], and flags [K, n], one row for each k. A flag is True if the label is
            proved to be the same for all parameters within the bounds at k.
        """
        return certify(self.head, self.problem.setup, self._select_box(ks), features, on_progress)

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Return lower and upper bounds on the margins of queries, for a model of two classes.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits k to bound the margin for, a subset of those for which there
                are bounds on the parameters; None: all of them.

        Returns:
            The margins [n] under the trained parameters, and bounds [K, n] that contain the margin
            under all parameters within the bounds at each k >= 1. A label is 1 where the margin is
            positive, else 0.
        """
        return compute_envelope(self.head, self.problem.setup, self._select_box(ks), features)

    def _select_box(self, ks: tuple[int, ...] | None) -> Box:
        """Return the trained parameters with their bounds for the given numbers of edits ``ks``.

        If ``ks`` is None, the bounds are those for every k of the grid.
        """
        return self.box if ks is None else self.box.select_ks(ks)

    def _network(self) -> Network:
        """Return the network that maps queries and parameters, or bounds on them, to logits."""
        return Network.from_head(self.head, self.settings.training.loss, self.problem.classes)

    def _map_blocks(self, features: np.ndarray, compute: Callable[[Tensor], T]) -> Iterable[T]:
        """Apply a function to successive blocks of queries and return its results in order.

        The processes of a distributed job share the blocks. The result can be iterated only once.

        Args:
            features: [n, ...] the queries. For n = 0 there is one empty block.
            compute: called with each block, a tensor [m, ...] in the model's precision with m at
                most ``QUERY_BLOCK_ROWS``.

        Raises:
            UnsoundError: a query is NaN, or infinite after conversion to the model's precision.
        """
        dtype = self.settings.training.dtype

        def compute_rows(rows: slice) -> T:
            """Convert and check some rows of the queries, and apply the function to them."""
            # A copy, because features may be read-only, about which PyTorch warns.
            block = np.array(features[rows], order="C")
            queries = torch.from_numpy(block).to(getattr(torch, dtype))
            finite_queries = check_queries(queries, dtype)
            return compute(finite_queries)

        return group().map_blocks(len(features), QUERY_BLOCK_ROWS, compute_rows)


def assess_boxes(
    dataset: Dataset, setup: TrainingSetup, plan: BatchPlan, choices: Fact
) -> tuple[Condition, ...]:
    """Return the conditions of a privacy guarantee, with evidence, for a network with bounds.

    The seven conditions are defined in docs/method.md: a dense grid of k, records that are selected
    independently, public constants, nested bounds, public preprocessing and choices, rounding that
    is accounted for, and a symmetric neighbour relation.

    Args:
        dataset: the data, with the evidence about its selection and preprocessing.
        setup: loss, steps, clip level, neighbour relation and grid of k.
        plan: the assignment of records to batches of the training.
        choices: the fact that says what data the settings were chosen on.

    Returns:
        The seven conditions in the order of docs/method.md (a to g), each with the facts for or
        against it.
    """
    facts = box_facts(setup.relation, setup.kgrid, setup.training.product, setup.training.dtype)
    return assess(
        dataset,
        setup,
        plan,
        choices,
        every_k=facts["a"],
        constants=stated_constants(plan, "steps_stated", steps=plan.steps),
        name_of_condition_d="inclusion-monotone rules",
        step=facts["d"],
        rounding=facts["f"],
    )


def box_facts(
    relation: RelationConfig, kgrid: KGridConfig, product: str, dtype: str
) -> dict[str, Fact]:
    """Return the evidence for three conditions of a guarantee, which needs only the settings.

    Args:
        relation: the neighbour relation, which says what one edit of a dataset may change.
        kgrid: the numbers of edits k for which training computes bounds.
        product: how intervals are multiplied: "exact" takes the extremes of the four products of
            ends; other rules are faster, but their results need not nest after rounding.
        dtype: the floating-point precision of training, "float32" or "float64".

    Returns:
        The letter of a condition -> the fact whether it holds. "a": k takes every integer value up
        to the largest one. "d": the bounds at k - 1 of a dataset that is one edit away lie within
        the bounds at k. "f": the bounds account for rounding errors.
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
    """Return the conditions of a privacy guarantee, with evidence, for a network with bounds.

    They are the seven conditions of docs/method.md. They depend only on settings and on the
    evidence that the dataset has, so the network need not be trained.

    Args:
        problem: the data and the settings.
        plan: the assignment of records to batches; None: the one that the problem's settings give.
            A member of an ensemble needs a plan of its own, for its part of the records.

    Returns:
        The seven conditions in the order of docs/method.md (a to g), each with the facts for or
        against it.
    """
    settings = problem.settings
    if plan is None:
        plan = problem.plan
    # Condition e (public choices) also rests on where the initial parameters come from.
    further_facts = {"e": settings.model.facts(settings.choices)}
    if settings.noise is not None:
        # Condition d (nested bounds): under noise, bounds compare trainings with the same draws.
        further_facts["d"] = (GIVEN_THE_DRAW,)
    conditions = assess_boxes(problem.dataset, problem.setup, plan, settings.choices)
    return add_facts(conditions, further_facts)


def copy_initial_parameters(head: nn.Sequential, initial: Mapping[str, Tensor]) -> bool:
    """Copy initial parameters into the linear and convolutional layers of a network, if all fit.

    Args:
        head: the network, whose parameters are overwritten in place.
        initial: ``weight.0``, ``bias.0``, ``weight.1``, ... -> the parameters of the first linear
            or convolutional layer, of the second, and so on.

    Returns:
        True if the parameters were copied. False if ``initial`` lacks a name, has another name or
        has a tensor of another shape; the network is then unchanged.
    """
    layers = [layer for layer in head if isinstance(layer, nn.Linear | nn.Conv2d)]
    parameters: dict[str, Tensor] = {}
    for index, layer in enumerate(layers):
        parameters[f"weight.{index}"] = layer.weight
        if layer.bias is not None:
            parameters[f"bias.{index}"] = layer.bias
    if parameters.keys() != initial.keys():
        return False
    shapes_fit = all(
        parameter.shape == initial[name].shape for name, parameter in parameters.items()
    )
    if not shapes_fit:
        return False
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(initial[name])
    return True


def build_starting_head(problem: Problem) -> nn.Sequential:
    """Return a new network, with the parameters from which training starts.

    The parameters are ``problem.initial`` if their names and shapes fit the layers. If they do not
    fit, the parameters are the random ones that ``training.seed`` draws.
    """
    head = _build_head(problem)
    if problem.initial is not None:
        copy_initial_parameters(head, problem.initial)  # changes nothing if they do not fit
    return head


def _build_head(problem: Problem) -> nn.Sequential:
    """Return a new network, with the random parameters that ``training.seed`` draws."""
    record_shape = problem.dataset.train.features.shape[1:]
    settings = problem.settings
    return settings.model.build(record_shape, problem.classes, settings.training)


def _plan_step_noise(settings: Settings, plan: BatchPlan, parameters: int) -> NoisePlan | None:
    """Return the amount of Gaussian noise that each training step adds (DP-SGD).

    Args:
        settings: the privacy that the noise has to guarantee (epsilon, delta), the neighbour
            relation, and the level at which each element of a record's gradient is clipped.
        plan: the batches: how often each record is used, and what sums of gradients are divided by.
        parameters: the number of scalar parameters.

    Returns:
        The sensitivity of one step and the noise's standard deviation; None if the settings ask
        for no noise.
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
    """Return a function that draws the noise of one training step (DP-SGD).

    Args:
        problem: the settings of the noise, and the data, from which the batches follow.
        head: the network, of which only the shapes of the parameters are read.
        checkpoints: store the random seed of the noise, so that a resumed training draws the same
            noise. Without checkpoints the seed is not stored.

    Returns:
        A function of the step's number that returns parameter name -> noise; None if the settings
        ask for no noise.
    """
    config = problem.settings.noise
    parameters = {name: parameter.detach() for name, parameter in head.named_parameters()}
    parameter_count = sum(parameter.numel() for parameter in parameters.values())
    plan = _plan_step_noise(problem.settings, problem.plan, parameter_count)
    if config is None or plan is None:  # both are None, or neither
        return None
    if config.seed is not None:  # the user fixed the draws: a simulation without privacy
        seed = noise_seed(config)
    else:
        # The number that an earlier attempt drew and stored; a new one if there was no attempt.
        seed = checkpoints.draw_once(SEED, partial(noise_seed, config))
    return partial(draw_noise, parameters, plan, seed)


@schema
class BoxKind(BoxConfig, CertificateKind):
    """The kind of certificate that bounds every parameter of a network during training.

    For each number of edits k, training carries lower and upper bounds on each parameter (a box)
    by interval arithmetic. They contain the parameters of every training within k edits of the
    data (docs/method.md). This kind covers networks of every supported layer, and neighbour
    relations that remove, add or move records.
    """

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "loss": "cross_entropy",
        "epochs": 4,
        "lr": 2.0,
        "decay": 0.1,
        "clip": 0.06,
    }
    covers_retraining = True

    def missing_training_settings(
        self, head: HeadBuilder, given: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """Return the names of training settings that the user still has to give.

        A network of several layers needs epochs, learning rate and clip level from the user. They
        have no defaults, because no values worked on all datasets of docs/measurements.md.

        Args:
            head: the network to be trained; a linear one needs none of them.
            given: name -> value, the training settings that the user gave.
        """
        if head.linear:
            return ()
        return tuple(name for name in ("epochs", "lr", "clip") if name not in given)

    def check(self, settings: Settings) -> None:
        """Raise ConfigError if the proofs of this kind of certificate do not cover the settings.

        Raises:
            ConfigError: a training setting is left to the recipe (the default settings of linear
                heads); the neighbour relation only changes labels; or training adds noise in an
                ensemble, or under a relation whose edits only remove records or whose steps have
                no bounded sensitivity.
        """
        self.check_parts(settings)

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> BoxModel:
        """Train a network, together with bounds on its parameters for every k of the grid.

        The bounds at k contain the parameters of training on any dataset within k edits.

        Args:
            problem: the records and the settings. ``problem.initial`` are the parameters to start
                from; they are ignored if they do not fit the layers.
            on_progress: receives the progress.
            checkpoints: where an interrupted training resumes from, and where it saves its state.

        Raises:
            ConfigError: the neighbour relation (which says what an edit may change) does not
                support a layer, the loss, a batch or the public records.
            UnsoundError: a bound became NaN or infinite, or a lower bound exceeds its upper bound.
        """
        head = build_starting_head(problem)
        noise = _make_noise(problem, head, checkpoints)
        box = train(
            head, problem.setup, problem.dataset.train, on_progress, noise, checkpoints=checkpoints
        )
        return BoxModel(problem, head, box, problem.plan)

    def load(self, problem: Problem, reader: Folder) -> BoxModel:
        """Read back a trained network with the bounds on its parameters.

        Args:
            problem: the settings and data that the model was trained with; its records may be
                missing.
            reader: the files that ``BoxModel.save`` wrote.

        Raises:
            ConfigError: a file is missing, or is not what was written.
            UnsoundError: a bound is NaN or infinite, a lower bound exceeds its upper bound, or a
                tensor's shape or dtype does not fit the settings.
        """
        head = _build_head(problem)
        # Only the shapes and dtypes of these parameters are used, to check those of the files.
        expected = {name: tensor.detach() for name, tensor in head.state_dict().items()}
        box = read_boxes(reader, problem.settings.kgrid.ks, expected)
        return BoxModel(problem, head, box, problem.plan)

    def allocating_shapes_only(self) -> AbstractContextManager[object]:
        """Return PyTorch's meta device as a context, in which tensors have shapes but no memory.

        ``load`` builds a new network only to learn the shapes of its parameters.
        """
        return torch.device("meta")

    def ignores_initial_parameters(self, problem: Problem) -> bool:
        """Return whether ``problem.initial`` has parameters that do not fit the layers' shapes.

        Training then ignores them and starts from the parameters that the seed draws.
        """
        if not problem.initial:
            return False
        return not copy_initial_parameters(_build_head(problem), problem.initial)

    def training_inputs(self, problem: Problem) -> dict[str, object]:
        """Return the inputs of training other than settings, records and machine.

        This is the SHA-256 of the initial parameters. The user's own code may have made them, so
        the settings do not determine them.

        Returns:
            A description for messages -> the hash, to be compared between processes or runs.
        """
        state = build_starting_head(problem).state_dict()
        content = save({name: tensor.contiguous() for name, tensor in state.items()})
        return {"the initial parameters": sha256(content).hexdigest()}

    def distances_differ_by_one(self, settings: Settings) -> bool:
        """Return whether one edit provably changes every stable distance by at most 1.

        A stable distance is the number of edits that a label is proved to withstand. It changes by
        at most 1 if the bounds of a neighbour at k - 1 lie within the bounds at k (Lemma 2 of
        docs/proofs/boxes.md). This is proved for exact interval products, and for edits that
        remove or add records. It is not proved for Rump's products, which may differ in the last
        digit, nor for edits that move features, because a record can be moved twice.
        """
        edits_whole_records = RELATIONS[settings.relation.name].edits_whole_records
        return settings.training.product == "exact" and edits_whole_records
