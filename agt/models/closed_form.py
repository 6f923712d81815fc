"""Kinds and models on public features whose certificates are in closed form, for every k at once.

What they share: the checks of their settings, the public feature map, and certificates a block of
queries at a time.
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
from agt.models.model import Trained
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
    """A kind whose certificates are in closed form, on public features: what all of them share."""

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
        """What belongs to boxes, to random initial parameters, and to a grid."""
        boxes = ("training.product", "compute.kernel", "compute.fragment", "compute.memory_mb")
        return {
            **dict.fromkeys(boxes, "no boxes"),
            "training.seed": "no random start",
            **dict.fromkeys(("kgrid", "kgrid.max", "kgrid.values"), "every k"),
        }

    def with_features(self, features: FeaturesConfig) -> Self:
        """Return the same settings on these public features. Raises ConfigError: they have some."""
        if self.features != FeaturesConfig():
            raise ConfigError(
                "features: the certificate already has its own features: give them in one of "
                "the two places only"
            )
        return replace(self, features=features)  # type: ignore[type-var]

    def check(self, settings: Settings) -> None:
        """Refuse what no closed form covers; the step size also depends on the data's declared
        size.

        Raises:
            ConfigError: hidden layers, momentum, a relation, a device or noise that the proofs
                leave out.
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
                    "noise.epsilon: certificate={name} does not add noise to training steps: "
                    "release the weights with agt predict "
                    "{config:mechanism=release_weights}, which adds noise once, at the end, "
                    "and needs less",
                    name=self.name,
                )
            )

    def covers_changed_labels(self) -> bool:
        """Return whether the proof covers records whose labels change (relation=flip)."""
        return False

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError where settings are not covered by what this kind adds to all closed
        forms.
        """

    def _check_head(self, settings: Settings) -> None:
        if not settings.model.linear:
            hidden = getattr(settings.model, "hidden", None)
            shown = (
                Message("{config:model}: your own network")
                if hidden is None
                else Message("{config:model.hidden}={hidden}", hidden=list(hidden))
            )
            raise ConfigError(
                Message(
                    "{shown}: certificate={name} only supports linear heads (no hidden "
                    "layers), which it trains itself: use {config:model=linear}, or "
                    "certificate=box",
                    shown=shown,
                    name=self.name,
                )
            )

    def resolve(
        self, training: TrainingConfig, classes: int, size: float, unit_rows: int
    ) -> TrainingConfig:
        """Return the settings with the recipe's numbers: those of a minimiser."""
        return resolve_minimiser(training, classes, size)

    def distances_differ_by_one(self, settings: Settings) -> bool:
        """Return True: a stable distance follows from how far one k moves the head, or the
        votes.
        """
        return True


@dataclass(frozen=True)
class ClosedFormModel(Trained):
    """A head on public features, whose stable distances are in closed form."""

    features: FeatureMap
    instant: ClassVar[bool] = True

    @property
    def training(self) -> TrainingConfig:
        """How it was trained, with numbers for what the settings left to the recipe."""
        raise NotImplementedError

    @property
    def _recipe_numbers(self) -> dict[str, float | int]:
        """What the recipe decided, under ``recipe.NAME``; nothing where every setting was a
        number.
        """
        return recipe_numbers(self.training, self.settings.training.by_recipe)

    def phi(self, features: np.ndarray) -> np.ndarray:
        """[n, w] public features of norm at most 1."""
        return self.features(features, self.settings.training.dtype)

    def over(self, features: np.ndarray) -> np.ndarray:
        """The same of training records, for whoever takes slices of them again and again
        (``FeatureMap.over``).
        """
        return self.features.over(
            features, self.settings.training.dtype, self.settings.compute.memory_mb
        )

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether the public features are those that a dataset's public rows make."""
        now = FeatureMap.from_dataset(self.settings.certificate.features, dataset).matrices
        then = self.features.matrices
        return now.keys() == then.keys() and all(
            np.array_equal(now[name], then[name]) for name in now
        )

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError for queries of another width; whatever is finite has features."""
        self.phi(features[:0])

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """[n, J] float64, of public features [n, w]."""
        raise NotImplementedError

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Certificates of queries with these public features [n, w], tabulated at these k."""
        raise NotImplementedError

    def _all_logits(self, features: np.ndarray) -> np.ndarray:
        parts = group().shared(
            len(features), ROWS, lambda rows: self.logits(self.phi(features[rows]))
        )
        return gathered(parts, len(features))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels."""
        return labels_of(self._all_logits(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[1, n] the logit, or logit difference, of two classes; else [classes, n] each logit
        less the best other.
        """
        return signed_margins(self._all_logits(features))

    def shares(self, features: np.ndarray) -> np.ndarray:
        """[n, C] the sigmoid or softmax of the logits."""
        return logistic_shares(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Stable distances; at some k, tabulated there alone and no farther than the last."""
        relation, grid, count = (
            self.settings.relation.name,
            ks or self.settings.kgrid.ks,
            len(features),
        )
        parts = group().shared(
            count,
            ROWS,
            lambda rows: self.certified(self.phi(features[rows]), grid),
            row_reporter(on_progress, count),
        )
        known = ClosedFormCertificates.concatenate(parts, count)
        return (
            known
            if ks is None
            else Certificates(grid, relation, known.prediction, np.asarray(known.certified))
        )


def read_features(problem: Problem, shelf: FileReader) -> FeatureMap:
    """The public feature map of a saved model.

    Raises ConfigError: its file is missing or damaged.
    """
    width = int(np.prod(problem.dataset.train.features.shape[1:]))
    bare, zero = (
        FeatureMap(problem.settings.certificate.features, width),
        torch.zeros((), dtype=torch.float64),
    )
    like = {name: zero.expand(shape) for name, shape in bare.shapes.items()}
    return bare.with_matrices(
        {name: matrix.numpy() for name, matrix in read_tensors(shelf, FEATURES, like).items()}
    )
