"""Certificates of an ensemble's vote, with the members' votes, which other mechanisms need."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from agt.certificates.stability import ClosedFormCertificates, LazyFlags
from agt.certificates.vote_costs import count_votes
from agt.certificates.votes import Vote
from agt.settings import RelationName

MAX_TABULATED_KS = 400  # values of k that tables and curves of a vote list one by one


@dataclass(frozen=True, repr=False)
class VoteCertificates(ClosedFormCertificates):
    """Certificates of an ensemble's vote, with each member's label and stable distance.

    ``prediction``, ``distance`` and ``steps`` are those of a vote of labels, or of a vote of
    margins if ``by_margins``. The other attributes are always about the members' labels.

    Attributes:
        steps: [n] int64, the vote's stable distance if each member's is counted in steps of its
            grid of k, instead of in edits (``counting=index``).
        members: [T, n] int64, each member's label.
        member_distances: [T, n] int64, the number of edits of its shard that each member's label
            survives.
        plurality: [n] int64, the label that most members give, the smaller one on ties.
        tally: int64, the statistic that mechanisms add noise to: for two classes [n], the absolute
            difference of their votes; for more classes [n, C], the votes for each.
        by_margins: whether the ensemble answers by the sum of its members' margins.
    """

    steps: np.ndarray
    members: np.ndarray
    member_distances: np.ndarray
    plurality: np.ndarray
    tally: np.ndarray
    by_margins: bool = False

    @classmethod
    def from_members(
        cls,
        relation: RelationName,
        by_distance: Vote,
        by_steps: Vote,
        members: np.ndarray,
        member_distances: np.ndarray,
        classes: int,
    ) -> "VoteCertificates":
        """Return the certificates of an ensemble that answers by a vote of its members' labels.

        Args:
            relation: the neighbour relation, which says what one edit is.
            by_distance: the vote with its stable distance in edits.
            by_steps: the same vote with its stable distance in steps of the members' grids of k.
            members: [T, n] int64, each member's label of each query.
            member_distances: [T, n] int64, the number of edits of its shard that each label
                survives.
            classes: C, the number of classes.
        """
        ks, certified = _tabulate(by_distance.distance)
        counts = count_votes(members, classes)  # [C, n]
        tally = np.ascontiguousarray(counts.T)  # [n, C]
        if classes == 2:
            tally = abs(counts[1] - counts[0])  # [n]
        return cls(
            ks=ks,
            relation=relation,
            prediction=by_distance.prediction,
            certified=certified,
            distance=by_distance.distance,
            steps=by_steps.distance,
            members=members,
            member_distances=member_distances,
            plurality=by_distance.prediction,
            tally=tally,
        )

    @property
    def grid_steps(self) -> np.ndarray:
        """Return the vote's stable distances in steps of the members' grids of k, [n] int64."""
        return self.steps

    def with_margins(self, by_distance: Vote, by_steps: Vote) -> "VoteCertificates":
        """Return the certificates of the same members when they vote by their margins.

        The attributes about the members' labels (``members``, ``plurality``, ``tally``) stay.

        Args:
            by_distance: the vote of margins with its stable distance in edits.
            by_steps: the same vote with its stable distance in steps of the members' grids of k.
        """
        ks, certified = _tabulate(by_distance.distance)
        return replace(
            self,
            ks=ks,
            prediction=by_distance.prediction,
            certified=certified,
            distance=by_distance.distance,
            steps=by_steps.distance,
            by_margins=True,
        )


def _tabulate(distance: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the values of k that tables show for some stable distances, and the flags there.

    Args:
        distance: [n] int64, the stable distances.

    Returns:
        (ks, certified). The ks are every k from 0 to the largest distance (at least 1), or about
        ``MAX_TABULATED_KS`` evenly spaced ones if those are more. The flags are [K, n] bool:
        whether the distance is at least k.
    """
    longest = int(distance.max(initial=0))
    spacing = max(1, -(-longest // MAX_TABULATED_KS))  # divided and rounded up
    last_k = max(longest, 1)
    ks = (*range(0, longest, spacing), last_k)
    # A vote is a function of the training data, so at k = 0 the label is always the same.
    certified_at_zero = np.ones(len(distance), dtype=bool)
    return ks, cast(np.ndarray, LazyFlags(ks, certified_at_zero, distance))
