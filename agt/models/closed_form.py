"""The base classes of kinds and models whose certificates are in closed form, for every k at once.

Both work on public features (a fixed map from records to vectors of norm at most 1). The kind
checks the settings. The model computes the features of queries, and certifies them in blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.settings import no_hidden_layers
from agt.certificates.stability import ClosedFormCertificates
from agt.data.arrays import ROWS, aligned_empty, gathered
from agt.data.dataset import Dataset
from agt.errors import ConfigError
from agt.models.features import FeatureMap
from agt.models.kind import BoundedQuantity, CertificateKind, UnreadReason
from agt.models.model import Model, map_queries
from agt.models.shares import logistic_shares
from agt.models.store import FEATURES, read_tensors
from agt.numeric import labels_of, signed_margins
from agt.problem import Problem, Settings
from agt.settings import RECIPE, FeaturesConfig, TrainingConfig
from agt.store.folder import Folder
from agt.training.loop import OnProgress, ignore_progress
from agt.training.strength import recipe_numbers, resolve_minimiser


class ClosedFormKind(CertificateKind):
    """The base class of kinds whose certificates are formulas that hold for every number of edits.

    They cover linear heads, or votes, on public features: a fixed map from records to vectors of
    norm at most 1. A formula bounds how far one edit of the data moves the model, so training
    itself computes no bounds, in contrast to ``BoxKind``.
    """

    training_defaults: ClassVar[Mapping[str, Any]] = {
        "loss": "binary_cross_entropy",
        "clip": 0.5,
        "batch": {"count": RECIPE},
        **dict.fromkeys(("lr", "epochs", "weight_decay"), RECIPE),
    }
    bounded: ClassVar[BoundedQuantity] = "norm"
    covers_every_k = True
    draws_start = False

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings that have no effect on training: dotted name -> the reason.

        Training computes no bounds on parameters ("no boxes"), starts from no random parameters
        ("no random start"), and gives certificates for every number of edits instead of a grid of
        them ("every k").
        """
        of_boxes = ("training.product", "compute.kernel", "compute.fragment", "compute.memory_mb")
        of_grid = ("kgrid", "kgrid.max", "kgrid.values")
        unread: dict[str, UnreadReason] = dict.fromkeys(of_boxes, "no boxes")
        unread["training.seed"] = "no random start"
        unread |= dict.fromkeys(of_grid, "every k")
        return unread

    @property
    def normalises_records(self) -> bool:
        """Whether records keep their directions when they are scaled to norm 1.

        With whitening, or a center of scattering features, the mean of public rows is subtracted.
        """
        return not self.features.whiten and not self.features.centers

    def with_features(self, features: FeaturesConfig) -> Self:
        """Return a copy of the certificate's settings with the given public feature map.

        Args:
            features: the settings of the map from records to public features.

        Raises:
            ConfigError: the settings already name a feature map that differs from the default.
        """
        if self.features != FeaturesConfig():
            raise ConfigError(
                "features: features= and certificate.features both give a feature map, but a "
                "model has only one: leave out either of the two"
            )
        return replace(self, features=features)  # type: ignore[type-var]

    def check(self, settings: Settings) -> None:
        """Raise ConfigError if the proofs of this kind of certificate do not cover the settings.

        The learning rate is checked later, because its limit depends on the data's declared size.

        Raises:
            ConfigError: the head has hidden layers, or ``check_parts`` refuses a setting.
        """
        self._check_head(settings)
        self.check_parts(settings)

    def _check_head(self, settings: Settings) -> None:
        """Raise ConfigError unless the head is one linear layer."""
        if settings.model.linear:
            return
        # only a network of the user's own has no widths of hidden layers
        raise no_hidden_layers(self.name, getattr(settings.model, "hidden", None))

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the training settings with a number in place of every "recipe".

        A setting that the user left at "recipe" gets the default for a minimiser of a regularised
        loss, computed from public numbers.

        Args:
            training: the settings as configured.
            classes: the number of classes.
            size: the declared number of records, or one ensemble member's part of it.
            unit_rows: not used: these defaults do not depend on the rows of one unit.
        """
        return resolve_minimiser(training, classes, size)

    def distances_differ_by_one(self, settings: Settings) -> bool:
        """Return True: one edit provably changes every stable distance by at most 1.

        A stable distance is the number of edits of the training data that a query's label
        withstands. All closed forms have this proof, whatever the settings are.
        """
        return True


@dataclass(frozen=True)
class ClosedFormModel(Model):
    """The base class of trained models whose stable distances are computed by a formula.

    A stable distance is the number of edits of the training data that a query's label withstands.
    A subclass is a linear head or a vote: it computes logits and certificates from public features.

    Attributes:
        features: the public feature map, from a record to a vector of norm at most 1.
        instant: True, because certifying a query takes no longer than predicting its label.
    """

    features: FeatureMap
    instant = True

    @property
    def training(self) -> TrainingConfig:
        """The settings that the model was trained with; each has a number.

        A setting that the user left at "recipe" (a default computed from public numbers) is
        resolved here. Every subclass overrides it; this default raises NotImplementedError.
        """
        raise NotImplementedError

    @property
    def _recipe_numbers(self) -> dict[str, float | int]:
        """The numbers that the recipe (the default settings) chose: ``recipe.SETTING`` -> number.

        Settings that the user gave are left out.
        """
        return recipe_numbers(self.training, self.settings.training.by_recipe)

    def phi(self, features: np.ndarray) -> np.ndarray:
        """Return the public features phi(x) of queries.

        Args:
            features: [n, ...] the queries, scaled as the training records were.

        Returns:
            [n, w] in the training's precision, each row of l2 norm at most 1.
        """
        return self.features(features, self.settings.training.dtype)

    def phi_of_records(self, features: np.ndarray, memory_mb: int | None = None) -> np.ndarray:
        """Return the public features phi(x) of training records, for code that reads them often.

        They are stored in memory, or computed at every access if they need more than
        ``compute.memory_mb`` and are cheap to compute. Both give the same bits.

        Args:
            features: [m, ...] the records' features, as the dataset scales them.
            memory_mb: replaces ``compute.memory_mb``; None: it stays.

        Returns:
            [m, w], an array or an object that can be sliced like one. Each row has an l2 norm of at
            most 1.
        """
        settings = self.settings
        if memory_mb is None:
            memory_mb = settings.compute.memory_mb
        return self.features.phi_of_records(features, settings.training.dtype, memory_mb)

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether a map made from a dataset has the same public matrices, bit for bit.

        Args:
            dataset: the data, of which only the rows that are declared public are read.
        """
        config = self.settings.certificate.features
        # The map that the dataset's public rows make; ``self.features`` may have been read back.
        expected = FeatureMap.from_dataset(config, dataset).matrices
        matrices = self.features.matrices
        if expected.keys() != matrices.keys():
            return False
        return all(np.array_equal(expected[name], matrices[name]) for name in expected)

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError if queries have another shape than the training records.

        Only the shape is checked. A query that is not finite raises later, in ``phi``.

        Args:
            features: [n, ...] the queries.
        """
        self.phi(features[:0])  # the result is not needed: it raises for another shape

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return the logits that the model gives to queries.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            phi: [n, w] public features of the queries, as ``phi`` returns them.

        Returns:
            [n, J] float64; J is 1 for two classes under a loss of one output, else the number of
            classes.
        """
        raise NotImplementedError

    def certify_phi(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Return the certificates of queries.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            phi: [n, w] public features of the queries, as ``phi`` returns them.
            ks: the numbers of edits for which the result lists whether each label is certified. The
                stable distances in the result do not depend on them.
        """
        raise NotImplementedError

    def _all_logits(self, features: np.ndarray) -> np.ndarray:
        """Return the logits of queries, computed in blocks that the processes of a job share.

        Args:
            features: [n, ...] the queries.

        Returns:
            [n, J] float64, as ``logits`` returns them.
        """
        blocks = map_queries(features, lambda queries: self.logits(self.phi(queries)))
        return gathered(blocks, len(features))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the predicted class index of each query, [n] int64."""
        return gathered(map_queries(features, self._block_labels), len(features))

    def _block_labels(self, features: np.ndarray) -> np.ndarray:
        """Return the labels of a block of queries, [n] int64.

        A subclass may compute them in another way, if every label is provably the same.

        Args:
            features: [n, ...] the queries.
        """
        return labels_of(self.logits(self.phi(features)))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the signed margins of queries; the predicted label changes where one is 0.

        Args:
            features: [n, ...] the queries.

        Returns:
            For two classes [1, n]: the only logit, or the second logit minus the first. For C > 2
            classes [C, n]: each logit minus the largest logit of another class.
        """
        return signed_margins(self._all_logits(features))

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return the predicted probability of each class, [n, C] (sigmoid or softmax)."""
        return logistic_shares(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Certificates:
        """Return for each query the number of edits of the training data that its label withstands.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits for which the result lists whether each label is certified; the
                stable distances in the result then end at the last of them. None: use the grid of
                the settings, and return stable distances that may exceed it.
            on_progress: called after every block of queries.

        Returns:
            The labels [n], the stable distances [n] (the number of edits that each label provably
            withstands), and flags [K, n], one row for each of the listed numbers of edits.
        """
        grid = ks or self.settings.kgrid.ks
        dtype = self.settings.training.dtype
        # For every block the same memory: the system fills new memory with zeros, which takes as
        # long as all the rest.
        memory = aligned_empty((min(len(features), ROWS), self.features.outputs), dtype)

        def certify_block(queries: np.ndarray) -> ClosedFormCertificates:
            """Return the certificates of a block of the queries."""
            return self.certify_phi(self.features(queries, dtype, memory[: len(queries)]), grid)

        blocks = map_queries(features, certify_block, on_progress, ROWS)
        certificates = ClosedFormCertificates.concatenate(list(blocks))
        if ks is None:
            return certificates
        # ``Certificates`` holds only the flags and computes its distances from them. The subclass
        # ClosedFormCertificates has distances beyond the last k, too.
        relation = self.settings.relation.name
        certified = np.asarray(certificates.certified)
        return Certificates(grid, relation, certificates.prediction, certified)


def read_features(problem: Problem, reader: Folder) -> FeatureMap:
    """Read back the public feature map of a saved model.

    Args:
        problem: the settings and data that the model was trained with; only the settings of the map
            and the shape of a record are used.
        reader: the model's files, which hold the map's matrices.

    Raises:
        ConfigError: the file is missing or damaged.
        UnsoundError: a matrix has another shape than the settings imply, or is not finite.
    """
    width = int(np.prod(problem.dataset.train.features.shape[1:]))
    without_matrices = FeatureMap(problem.settings.certificate.features, width)
    # Each expected tensor is one zero, expanded to the shape, so that it takes no memory.
    zero = torch.zeros((), dtype=torch.float64)
    expected = {name: zero.expand(shape) for name, shape in without_matrices.shapes.items()}
    tensors = read_tensors(reader, FEATURES, expected)
    matrices = {name: matrix.numpy() for name, matrix in tensors.items()}
    return without_matrices.with_matrices(matrices)
