"""Certificates of an ensemble's vote, with the votes that released labels and audits need."""

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
    """Certificates of a vote, and what other ways of voting need.

    Attributes:
        steps: [n] int64, the vote's distance with each member's distance counted in steps of its
            grid (``counting=index``).
        members: [T, n] int64, each member's label.
        member_distances: [T, n] int64, each member's stable distance.
        plurality: [n] int64, the label that most members give; it is the prediction, unless that
            is by margins.
        tally: int64, what noise is added to: [n] the absolute difference of two classes' votes, or
            [n, C] the votes for each of more classes.
        by_margins: prediction, distances and steps are those of the members' margins; everything
            else is that of their labels.
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
        """Return the certificates of a vote of members' labels.

        Args:
            relation: the neighbour relation that k counts.
            by_distance: the vote by the members' stable distances.
            by_steps: the vote by the members' distances in steps of their grids.
            members: [T, n] int64, each member's label.
            member_distances: [T, n] int64, each member's stable distance.
            classes: C.
        """
        ks, certified = _tabulate(by_distance.distance)
        counts = count_votes(members, classes)
        tally = abs(counts[1] - counts[0]) if classes == 2 else np.ascontiguousarray(counts.T)
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
        """Return the vote's distances in steps of the members' grids, [n] int64."""
        return self.steps

    def with_margins(self, by_distance: Vote, by_steps: Vote) -> "VoteCertificates":
        """Return the certificates of the same members where they vote by their margins.

        Args:
            by_distance: the vote of margins with its distance in edits.
            by_steps: the vote of margins with its distance in steps of the grid.
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
    """Return the values of k that tables list for distances [n], and the flags at these.

    They are every k up to the longest distance, or evenly spaced ones if those are too many.
    """
    longest = int(distance.max(initial=0))
    spacing = max(1, -(-longest // MAX_TABULATED_KS))
    ks = (*range(0, longest, spacing), max(longest, 1))
    # A vote is a function of the data, so training again at k = 0 gives the same label.
    certified_at_zero = np.ones(len(distance), dtype=bool)
    return ks, cast(np.ndarray, LazyFlags(ks, certified_at_zero, distance))
