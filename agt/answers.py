"""What a fitted model returns: certified labels or numbers, and published labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agt.arrays import Labels, StableDistances
from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.mechanisms.claims import Claim
from agt.models.number_votes import NumberCertificates, ToleranceDistances


@dataclass(frozen=True, repr=False)
class Answers:
    """The labels of n queries, and how many people's data it would take to change each of them.

    ``Fitted.certify`` returns it. Everything here depends on private records, so it is for the data
    owner only.

    Attributes:
        labels: [n] the labels, as values of ``Fitted.classes``.
        certificates: the certificates, which say for each k which labels k edits of the training
            records cannot change; and the relation, which defines one edit
            (``certificates.relation``).
        conditions: the seven conditions of a privacy claim, a to g (docs/method.md), in this order,
            each proved, declared by the user, or not met.
    """

    labels: Labels
    certificates: Certificates
    conditions: tuple[Condition, ...]

    def __repr__(self) -> str:
        """Return a short text: the number of queries, the relation, the grid, the conditions."""
        query_count = len(self.labels)
        relation = self.certificates.relation
        k_values = grid_text(self.certificates.ks)
        conditions = conditions_text(self.conditions)
        censored_count = int(self.censored.sum())
        cut_off = ""
        if censored_count:
            end = self.certificates.ks[-1]
            cut_off = (
                f"\n  {censored_count} of the {query_count} stable distances are at least {end}, "
                "the end of the grid (censored)"
            )
        return (
            f"agt.Answers: labels and stable distances of {query_count} queries (private, only "
            f"for the data owner)\n  relation {relation}, k = {k_values}{cut_off}\n  {conditions}"
        )

    @property
    def stable_distance(self) -> StableDistances:
        """[n] int64: the largest number k of edits that is proved unable to change the label.

        An edit is what the relation counts, by default one person's records added or removed. 0
        means that nothing is proved even for one edit. With ``certificate="box"`` no distance
        exceeds the last k of the grid, and ``censored`` marks those that are cut off there.
        """
        return self.certificates.stable_distance

    @property
    def censored(self) -> np.ndarray:
        """[n] bool: whether the stable distance is cut off at the last k of the grid ``ks``.

        It is a censored value in the sense of survival analysis: at least this, and perhaps more.
        A median of distances that is the last k is then "at least" this k as well. False for every
        certificate but ``box``, and for ensembles, whose distances have no such end.
        """
        return self.certificates.censored


@dataclass(frozen=True, repr=False)
class NumberAnswers(Answers):
    """The numbers that answer n queries, and the intervals that edits of the data cannot leave.

    ``Fitted.certify`` returns it for numeric labels. Everything here depends on private records, so
    it is for the data owner only.

    Attributes:
        labels: [n] float64, the answers.
        certificates: the intervals for every k, and the relation, which defines one edit.
        conditions: the seven conditions of a privacy claim, a to g (docs/method.md), in this order,
            each proved, declared by the user, or not met.
    """

    certificates: NumberCertificates  # type: ignore[assignment]  # numbers have intervals

    @property
    def censored(self) -> np.ndarray:
        """Raise ConfigError: numbers have intervals, not stable distances."""
        raise self._no_distances()

    @property
    def stable_distance(self) -> StableDistances:
        """Raise ConfigError: numbers have intervals, not stable distances."""
        raise self._no_distances()

    def _no_distances(self) -> ConfigError:
        """Return the error for asking numeric answers for stable distances."""
        return ConfigError(
            "stable_distance only exists for labels. For answers that are numbers, use bounds(k) "
            "or within(tolerance)"
        )

    def __repr__(self) -> str:
        """Return a short text: the number of queries, the relation, the conditions."""
        conditions = conditions_text(self.conditions)
        return (
            f"agt.NumberAnswers: {len(self.labels)} numbers and their intervals (private, only for "
            f"the data owner)\n  relation {self.certificates.relation}, every k\n  {conditions}"
        )

    def bounds(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds [n] on the answers after any k edits of the records.

        Args:
            k: the number of edits (people added or removed, by default), at least 0.
        """
        return self.certificates.bounds(k)

    def width(self, k: int) -> np.ndarray:
        """Return the widths [n] of the intervals that k edits of the records cannot leave."""
        return self.certificates.width(k)

    def within(self, tolerance: float) -> ToleranceDistances:
        """Return up to how many edits each answer stays within a tolerance; never release it.

        Args:
            tolerance: the largest change that is tolerated, in the unit of the labels, at least 0.
        """
        return self.certificates.within(tolerance)


@dataclass(frozen=True, repr=False)
class Published:
    """Labels released with differential privacy, as ``Fitted.release`` returns them.

    Attributes:
        labels: [n] the released labels, as values of ``Fitted.classes``, or numbers. They may be
            published if ``claim.proved`` is True and ``simulated`` is False.
        claim: the privacy guarantee (``claim.guarantee``, for each label) and the conditions that
            it needs; or why there is none (``claim.reasons``).
        words: the sentences that may be published with the labels, the guarantee first.
        simulated: True if the noise came from a seed. Then the labels are not private.
    """

    labels: Labels
    claim: Claim
    words: tuple[str, ...]
    simulated: bool

    def __repr__(self) -> str:
        """Return a short text: the number of labels, the mechanism, the guarantee."""
        label_count = len(self.labels)
        mechanism = self.claim.mechanism
        guarantee = self.words[0]
        return f"agt.Published: {label_count} labels released by {mechanism}\n  {guarantee}"


def grid_text(ks: Sequence[int]) -> str:
    """Return a grid of k as short text: "0 to 50", or "0, 5, 10 to 100" if it skips values.

    Args:
        ks: the values of k, increasing, at least one.
    """
    if len(ks) > 1 and list(ks) == list(range(ks[0], ks[-1] + 1)):
        return f"{ks[0]} to {ks[-1]}"
    first_values = ", ".join(map(str, ks[:3]))
    if len(ks) <= 3:
        return first_values
    return f"{first_values} to {ks[-1]}"


def conditions_text(conditions: Sequence[Condition]) -> str:
    """Return the letters of conditions as text, grouped by how far they are established.

    For example "conditions proved: a d f g; declared: c e; not met: b".

    Args:
        conditions: the seven conditions of a privacy guarantee (docs/method.md).
    """
    shown_names = {"proved": "proved", "declared": "declared", "not held": "not met"}
    groups = []
    for standing, shown_name in shown_names.items():
        members = [item.letter for item in conditions if item.evidence.standing == standing]
        letters = " ".join(members) or "none"
        groups.append(f"{shown_name}: {letters}")
    return f"conditions {'; '.join(groups)}"
