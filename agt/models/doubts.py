"""How many of a model's answers are certified at all, and warnings to its owner if few are."""

from dataclasses import dataclass

import numpy as np

from agt.certificates.box import Certificates
from agt.data.records import Records
from agt.messages import Message
from agt.models.model import Model
from agt.problem import Settings

SAMPLE_ROWS = 1_000
"""The largest number of records that a new model is tried on, for warnings."""
LARGE_FEATURE = 20.0
"""Features above this in absolute value cause a warning."""


@dataclass(frozen=True)
class CertifiedCounts:
    """The numbers of a model's answers that are certified at k = 0 and at larger k.

    The counts depend on private records, so they are for the data owner only.

    Attributes:
        count: the number of answers.
        uncertified: the number of answers that are not certified even at k = 0; 0 where the grid
            has no k = 0.
        stable: the number of answers that have a stable distance of at least 1.
        settings: the settings of the training.
    """

    count: int
    uncertified: int
    stable: int
    settings: Settings

    @classmethod
    def from_certificates(cls, certificates: Certificates, settings: Settings) -> "CertifiedCounts":
        """Count the certified answers.

        Args:
            certificates: the certificates of n answers.
            settings: the settings of the training.
        """
        count = len(certificates.prediction)
        uncertified = 0
        if certificates.ks[0] == 0:
            certified_without_edits = int(certificates.certified[0].sum())
            uncertified = count - certified_without_edits
        stable = int((certificates.stable_distance > 0).sum())
        return cls(count, uncertified, stable, settings)

    @property
    def rounding_warning(self) -> Message | None:
        """The warning that rounding leaves answers without a certificate; None: it leaves none.

        It names the remedy. The records of k = 0 are the training records themselves, so only the
        bounds on rounding can keep an answer from being certified.
        """
        if not self.uncertified:
            return None
        remedy = Message("train again with {config:training.dtype=float64}")
        if self.settings.training.dtype == "float64":
            remedy = Message(
                "train again with larger margins (a larger {config:training.lr}, more "
                "{config:training.epochs}) or fewer layers"
            )
        return Message(
            "{uncertified:,} of {count:,} answers are not certified even at k = 0, that is, "
            "without any change of the data, because the bounds on {dtype} rounding are wider than "
            "the margins. Nothing is proved about these answers: {remedy}.",
            uncertified=self.uncertified,
            count=self.count,
            dtype=self.settings.training.dtype,
            remedy=remedy,
        )

    @property
    def distance_warning(self) -> Message | None:
        """The warning that half or more of the answers have stable distance 0; None: fewer have.

        It names the remedy. It is left out if there is the warning about rounding.
        """
        most_are_stable = 2 * self.stable > self.count
        if self.uncertified or most_are_stable:
            return None
        remedy = Message(
            "use a linear head ({config:certificate=stability model=linear}), or train again with "
            "half the clip level ({config:training.clip_elementwise}={half:g}), with which a "
            "record moves each step at most half as far, or with fewer {config:training.epochs}",
            half=self.settings.training.clip / 2,
        )
        # A grid without k = 0 does not show whether rounding alone is the reason.
        if self.settings.training.dtype == "float32":
            remedy = Message(
                "first train again with {config:training.dtype=float64}, because float32 rounding "
                "widens the bounds. If that does not suffice, {other_remedy}",
                other_remedy=remedy,
            )
        if self.settings.certificate.covers_every_k:
            remedy = Message("use more records, or a larger {config:training.caution}")
        change = "record changes"
        if self.settings.relation.unit_rows > 1:
            change = "person's records change"
        return Message(
            "Half or more of {count:,} answers have stable distance 0, so nothing is proved "
            "about these answers if even one {change}: {remedy}.",
            count=self.count,
            change=change,
            remedy=remedy,
        )


def sample_records(records: Records) -> Records:
    """Return at most ``SAMPLE_ROWS`` of the records, evenly spaced."""
    return records.take(sample_rows(records, SAMPLE_ROWS))


def sample_rows(records: Records, count: int) -> np.ndarray:
    """Return the indices of at most ``count`` records, evenly spaced, [n] int64."""
    rows = min(len(records), count)
    return np.linspace(0, len(records) - 1, rows, dtype=np.int64)


def large_feature(records: Records) -> float | None:
    """Return the largest feature in absolute value if it is far outside of [-1, 1]; None: it is
    not, or there are no records.

    It depends on private records, so it is for the data owner only.

    Args:
        records: training records as the model gets them; some suffice.
    """
    largest = largest_feature(records.features)
    return largest if largest > LARGE_FEATURE else None


def largest_feature(features: np.ndarray) -> float:
    """Return the largest feature of records in absolute value; 0 if there is none.

    Args:
        features: [n, ...]
    """
    return max(float(features.max(initial=0)), -float(features.min(initial=0)))


def count_certified(model: Model, sample: Records) -> CertifiedCounts | None:
    """Certify some records at the first two k of the grid, and count the certified answers.

    Args:
        model: a trained model.
        sample: records on the scale of the model's own dataset.

    Returns:
        The counts; None for an ensemble, whose members would all have to be asked, and if there
        are no records.
    """
    settings = model.problem.settings
    if settings.ensemble.members > 1 or not len(sample):
        return None
    certificates = model.certify(sample.features, settings.kgrid.ks[:2])
    return CertifiedCounts.from_certificates(certificates, settings)
