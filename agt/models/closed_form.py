"""The base classes of kinds and models whose certificates are in closed form, for every k at once.

Both stand on public features. The kind checks the settings; the model makes the features of
queries, and certifies them a block at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.stability import ClosedFormCertificates
from agt.data.arrays import ROWS, gathered
from agt.data.dataset import Dataset
from agt.distributed import group
from agt.errors import ConfigError
from agt.messages import Message
from agt.models.features import FeatureMap
from agt.models.kind import BoundedQuantity, CertificateKind, UnreadReason
from agt.models.model import ModelDefaults
from agt.models.shares import logistic_shares
from agt.models.store import FEATURES, FileReader, read_tensors
from agt.numeric import labels_of, signed_margins
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.settings import RECIPE, FeaturesConfig, TrainingConfig
from agt.training.loop import OnProgress, row_reporter
from agt.training.sensitivity import check_no_momentum
from agt.training.strength import recipe_numbers, resolve_minimiser


class ClosedFormKind(CertificateKind):
    """A kind of certificate in closed form, for heads or votes on public features."""

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "loss": "binary_cross_entropy",
        "clip": 0.5,
        "batch": {"count": RECIPE},
        **dict.fromkeys(("lr", "epochs", "weight_decay"), RECIPE),
    }
    bounded: ClassVar[BoundedQuantity] = "norm"
    covers_every_k: ClassVar[bool] = True
    draws_start: ClassVar[bool] = False

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings of boxes, of random initial parameters, and of a grid of k."""
        of_boxes = ("training.product", "compute.kernel", "compute.fragment", "compute.memory_mb")
        of_grid = ("kgrid", "kgrid.max", "kgrid.values")
        unread: dict[str, UnreadReason] = dict.fromkeys(of_boxes, "no boxes")
        unread["training.seed"] = "no random start"
        unread |= dict.fromkeys(of_grid, "every k")
        return unread

    def with_features(self, features: FeaturesConfig) -> Self:
        """Return the same settings on these public features.

        Raises:
            ConfigError: the settings name public features already.
        """
        if self.features != FeaturesConfig():
            raise ConfigError(
                "features: the certificate already has features of its own "
                "(certificate.features): give features in only one of the two places"
            )
        return replace(self, features=features)  # type: ignore[type-var]

    def check(self, settings: Settings) -> None:
        """Refuse settings that no closed form covers.

        The learning rate is checked later, because its limit depends on the data's declared size.

        Raises:
            ConfigError: the head has hidden layers, training has momentum or noise in its steps,
                the device is not the CPU, or the proofs do not cover the relation.
        """
        relation = RELATIONS[settings.relation.name]
        relation.check_head(self.covers_changed_labels(), settings.relation.unit_rows)
        self._check_head(settings)
        if settings.compute.device != "cpu":
            raise ConfigError(
                Message(
                    "{config:compute.device}={device}: certificate={name} only runs on the "
                    "CPU: use {config:compute=default}",
                    device=settings.compute.device,
                    name=self.name,
                )
            )
        relation.check_closed_form()
        check_no_momentum(settings.training)
        self.check_own(settings)
        if settings.noise is not None:
            raise ConfigError(
                Message(
                    "noise.epsilon: certificate={name} does not add noise to training steps. "
                    "Release the weights with agt predict {config:mechanism=release_weights}, "
                    "which adds noise once, at the end, and needs less noise",
                    name=self.name,
                )
            )

    def covers_changed_labels(self) -> bool:
        """Return whether the proofs cover records whose labels change (``relation=flip``)."""
        return False

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError for settings that this kind refuses beyond what all closed forms do."""

    def _check_head(self, settings: Settings) -> None:
        """Raise ConfigError unless the head is linear."""
        if settings.model.linear:
            return
        hidden = getattr(settings.model, "hidden", None)
        if hidden is None:
            shown = Message("{config:model}: your own network")
        else:
            shown = Message("{config:model.hidden}={hidden}", hidden=list(hidden))
        raise ConfigError(
            Message(
                "{shown}: certificate={name} trains a linear head itself, so it does not "
                "support hidden layers: use {config:model=linear}, or certificate=box",
                shown=shown,
                name=self.name,
            )
        )

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the training settings with the recipe's numbers for a minimiser."""
        return resolve_minimiser(training, classes, size)

    def distances_differ_by_one(self, settings: Settings) -> bool:
        """Return True: one k moves logits and votes by at most one step of stable distance."""
        return True


@dataclass(frozen=True)
class ClosedFormModel(ModelDefaults):
    """A head or votes on public features, whose stable distances are in closed form.

    A subclass says what the logits and certificates of public features are.

    Attributes:
        features: the public feature map.
    """

    features: FeatureMap
    instant: ClassVar[bool] = True

    @property
    def training(self) -> TrainingConfig:
        """The settings of its training, with numbers in place of what the recipe decides."""
        raise NotImplementedError

    @property
    def _recipe_numbers(self) -> dict[str, float | int]:
        """The settings that the recipe decided, as metrics named ``recipe.SETTING``."""
        return recipe_numbers(self.training, self.settings.training.by_recipe)

    def phi(self, features: np.ndarray) -> np.ndarray:
        """Return the public features of queries, [n, w], each row of norm at most 1."""
        return self.features(features, self.settings.training.dtype)

    def over(self, features: np.ndarray) -> np.ndarray:
        """Return the public features of training records, [m, w], of which slices are read often.

        They are stored, or computed slice by slice if they do not fit into the memory that
        ``compute.memory_mb`` allows (``FeatureMap.over``).
        """
        settings = self.settings
        return self.features.over(features, settings.training.dtype, settings.compute.memory_mb)

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether a dataset's public rows make this feature map, bit for bit."""
        config = self.settings.certificate.features
        expected = FeatureMap.from_dataset(config, dataset).matrices
        matrices = self.features.matrices
        if expected.keys() != matrices.keys():
            return False
        return all(np.array_equal(expected[name], matrices[name]) for name in expected)

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError for queries of another shape; every finite query has features."""
        self.phi(features[:0])  # called only because it raises

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return the logits of queries with these public features.

        Args:
            phi: [n, w] public features.

        Returns:
            [n, J] float64; J is 1 for two classes under a loss of one output, else the number of
            classes.
        """
        raise NotImplementedError

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Return certificates of queries with these public features.

        Args:
            phi: [n, w] public features.
            ks: the k at which the certificates are tabulated.
        """
        raise NotImplementedError

    def _all_logits(self, features: np.ndarray) -> np.ndarray:
        """Return the logits of queries, [n, J], computed by all processes in blocks of rows."""

        def block_logits(rows: slice) -> np.ndarray:
            return self.logits(self.phi(features[rows]))

        blocks = group().shared(len(features), ROWS, block_logits)
        return gathered(blocks, len(features))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the labels of queries, [n] int64."""
        return labels_of(self._all_logits(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the margins of queries: of two classes [1, n], else [C, n].

        Of two classes it is the logit, or the difference of the two; of more, each logit less the
        largest of the others.
        """
        return signed_margins(self._all_logits(features))

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return the sigmoid or softmax of the logits, [n, C]."""
        return logistic_shares(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Return the certificates of queries, with stable distances at every integer k.

        Args:
            features: [n, ...] the queries.
            ks: tabulate the certificates at these k alone; their stable distances then end at the
                last of them. None: at the grid's k.
            on_progress: called after every block of queries.
        """
        grid = ks or self.settings.kgrid.ks
        count = len(features)

        def certify_block(rows: slice) -> ClosedFormCertificates:
            return self.certified(self.phi(features[rows]), grid)

        blocks = group().shared(count, ROWS, certify_block, row_reporter(on_progress, count))
        certificates = ClosedFormCertificates.concatenate(blocks, count)
        if ks is None:
            return certificates
        relation = self.settings.relation.name
        certified = np.asarray(certificates.certified)
        return Certificates(grid, relation, certificates.prediction, certified)


def read_features(problem: Problem, reader: FileReader) -> FeatureMap:
    """Read back the public feature map of a saved model.

    Raises:
        ConfigError: its file is missing or damaged.
        UnsoundError: a matrix has another shape than the settings imply, or is not finite.
    """
    width = int(np.prod(problem.dataset.train.features.shape[1:]))
    without_matrices = FeatureMap(problem.settings.certificate.features, width)
    # Expanded from one number, so that the expected shapes take no memory.
    zero = torch.zeros((), dtype=torch.float64)
    expected = {name: zero.expand(shape) for name, shape in without_matrices.shapes.items()}
    tensors = read_tensors(reader, FEATURES, expected)
    matrices = {name: matrix.numpy() for name, matrix in tensors.items()}
    return without_matrices.with_matrices(matrices)
