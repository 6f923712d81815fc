"""A labelling: a model and the mechanism that draws a private label for each query.

    labelling = Labelling.judged(model, RandomizedResponse(eps=0.1))
    labelling.claim.lines()                            what is guaranteed of each label
    labelling.labels(features, SystemRandomness())     [n] labels; each spends the guarantee

Each label is a separate release; composition.py adds their guarantees up. agt/release.py ensures
that labels are paid for before they are drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.certificates.vote_certificates import VoteCertificates
from agt.data.arrays import gathered, pieces
from agt.errors import ConfigError
from agt.mechanisms.claims import Claim
from agt.mechanisms.judging import Voting, judge_claim
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.published import check_published_vote, published_vote
from agt.messages import Message
from agt.models.model import Model
from agt.numeric import Randomness
from agt.relations import RELATIONS
from agt.release_settings import no_votes
from agt.settings import Accounting, Counting
from agt.training.loop import OnProgress, Progress, ignore_progress
from agt.training.settings import EnsembleConfig

if TYPE_CHECKING:
    from agt.mechanisms.laplace_mean import LaplaceMean
    from agt.models.number_votes import NumberVotes


def evidence_of(certificates: Certificates, counting: Counting) -> np.ndarray:
    """Return the number of edits that certainly leave the label of each query unchanged.

    Args:
        certificates: the certificates of n queries.
        counting: "distance": the largest certified number of edits of the training data; "index":
            how many values of the grid of such numbers are certified, for a sparse grid.

    Returns:
        [n] int64, private.
    """
    if counting == "distance":
        return certificates.stable_distance
    return certificates.grid_steps


@dataclass(frozen=True)
class AnyLabelling(ABC):
    """A model of classes or numbers, and the mechanism that draws its private answers.

    Attributes:
        model: the model that answers.
        mechanism: draws an answer from what it reads of the model.
        claim: the privacy claim for each answer.

    Formal guarantees
        - ``judged`` of a subclass reads only public values, such as settings and conditions.
        - ``labels`` and ``draw_in_pieces`` compute private evidence, and draw.
    """

    model: "Model | NumberVotes"
    mechanism: "Mechanism | LaplaceMean"
    claim: Claim

    def labels(
        self,
        features: np.ndarray,
        randomness: Randomness,
        on_progress: OnProgress = ignore_progress,
    ) -> np.ndarray:
        """Draw an answer to each query; each spends the guarantee once.

        The caller has to pay for the answers first (agt/release.py does).

        Args:
            features: [n, ...] the queries, as the model takes them.
            randomness: ``SystemRandomness`` for a private release; anything else is a simulation.
            on_progress: called while the model is asked.

        Returns:
            [n] int64: labels of classes, or of numbers the sums of the members' answers.
        """
        return gathered(self.draw_in_pieces(features, randomness, on_progress), len(features))

    def draw_in_pieces(
        self,
        features: np.ndarray,
        randomness: Randomness,
        on_progress: OnProgress,
    ) -> Iterator[np.ndarray]:
        """Yield answers to consecutive queries, a piece at a time, so that memory stays bounded.

        The model is asked about a piece when the piece is asked for. Each answer spends the
        guarantee once, so the caller has to pay for all of them first.

        Args:
            features: [n, ...] the queries, as the model takes them.
            randomness: ``SystemRandomness`` for a private release; anything else is a simulation.
            on_progress: called while the model is asked, with progress among all n.

        Yields:
            int64 answers to one piece of the queries; n in all pieces together.
        """
        count = len(features)
        start = 0
        for piece in pieces(features):
            on_piece = on_progress
            if len(piece) < count:  # there are several pieces
                on_piece = partial(_shifted_progress, on_progress, start, len(piece), count)
            yield self._draw(piece, randomness, on_piece)
            start += len(piece)

    @abstractmethod
    def _draw(
        self, features: np.ndarray, randomness: Randomness, on_progress: OnProgress
    ) -> np.ndarray:
        """Return an answer to each query of one piece, [n] int64.

        Args:
            features: [n, ...] the queries, as the model takes them.
            randomness: ``SystemRandomness`` for a private release; anything else is a simulation.
            on_progress: called while the model is asked.
        """

    @abstractmethod
    def published(self, labels: np.ndarray) -> np.ndarray:
        """Return the values that are published for drawn answers.

        Args:
            labels: [n] int64, answers that ``labels`` or ``draw_in_pieces`` drew.

        Returns:
            [n]: the same labels of classes, int64; or numbers, float64.
        """


@dataclass(frozen=True)
class Labelling(AnyLabelling):
    """A model of classes, and the mechanism that draws a private label for each query.

    The mechanism draws a label from a query's nominal label and its evidence (how many edits of the
    training data certainly leave the label unchanged, or vote counts).

    Attributes:
        voting: how the evidence of an ensemble is computed from its members: "certified",
            "published" (as in the paper, without a proof), or "none": there is no ensemble.
    """

    model: Model
    mechanism: Mechanism
    voting: Voting

    @classmethod
    def judged(
        cls,
        model: Model,
        mechanism: Mechanism,
        conditions: Sequence[Condition] | None = None,
        accounting: Accounting = "rigorous",
        counting: Counting = "distance",
    ) -> "Labelling":
        """Return the labelling of a model, with the claim that each of its labels may have.

        Args:
            model: the model that answers.
            mechanism: the mechanism, for as many classes as the model has.
            conditions: a to g, the assumptions of the proof (docs/reference.md, section 3), as
                assessed; None: the model's own.
            accounting: "rigorous" refuses where a required condition does not hold; "paper" also
                takes an ensemble's published vote, and says where nothing is proved.
            counting: what the evidence counts: "distance": edits of the training data; "index":
                values of the grid of such numbers, for a sparse grid.

        Raises:
            ConfigError: the claim is refused, or the mechanism does not fit the model.
        """
        settings = model.problem.settings
        classes = model.problem.classes
        if not isinstance(mechanism, Mechanism):
            raise ConfigError(
                f"mechanism: {mechanism!r} is not a label mechanism, so give an object such as "
                "RandomizedResponse(eps=1.0)"
            )
        if mechanism.classes != classes:
            raise ConfigError(
                Message(
                    "{config:mechanism.classes}={classes}, but the model has {known} classes: "
                    "give classes={known} (in a configuration, null means the model's classes)",
                    classes=mechanism.classes,
                    known=classes,
                )
            )
        voting = _voting(settings.ensemble, mechanism, accounting, classes)
        # The noise has to cover every vote that one edit can change under the model's relation.
        mechanism = mechanism.for_changed_votes(
            RELATIONS[settings.relation.name].members_changed_per_edit
        )
        if conditions is None:
            conditions = model.conditions
        claim_of_one_label = judge_claim(
            conditions,
            settings.relation,
            mechanism,
            accounting=accounting,
            counting=counting,
            voting=voting,
            noisy=settings.noise is not None,
        )
        return cls(model, mechanism, claim_of_one_label, voting)

    def _draw(
        self, features: np.ndarray, randomness: Randomness, on_progress: OnProgress
    ) -> np.ndarray:
        """Certify queries and draw a label for each, [n] int64.

        To certify a query is to compute how many edits of the training data certainly leave its
        label.

        Args:
            features: [n, ...] the queries, as the model takes them.
            randomness: ``SystemRandomness`` for a private release; anything else is a simulation.
            on_progress: called while queries are certified.
        """
        prediction, evidence = self.evidence(features, on_progress)
        # max_distance is public and bounds the evidence: see Mechanism.release about time.
        return self.mechanism.release(prediction, evidence, randomness, self.model.max_distance)

    def published(self, labels: np.ndarray) -> np.ndarray:
        """Return the drawn labels [n] themselves, which are published unchanged."""
        return labels

    def evidence(
        self, features: np.ndarray, on_progress: OnProgress = ignore_progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the private input of the mechanism for each query: a nominal label and evidence.

        The evidence is how many edits of the training data certainly leave the label unchanged. For
        a mechanism that counts an ensemble's votes it is the votes.

        Args:
            features: [n, ...] the queries, as the model takes them.
            on_progress: called while queries are certified.

        Returns:
            ([n] labels of the trained model, [n] integers >= 0). For a mechanism that counts votes
            the second is the gap between the two counts [n], or [n, C] counts of more than two
            classes.
        """
        certificates = self.model.certify(features, on_progress=on_progress)
        if isinstance(certificates, VoteCertificates):
            if self.mechanism.needs == "votes":
                return certificates.plurality, certificates.tally
            if self.voting == "published":
                vote = published_vote(certificates.members, certificates.member_distances)
                return vote.prediction, vote.distance
        return certificates.prediction, evidence_of(certificates, self.claim.counting)


def _voting(
    config: EnsembleConfig, mechanism: Mechanism, accounting: Accounting, classes: int
) -> Voting:
    """Return the way in which the evidence of an ensemble is computed from its members.

    Args:
        config: the number of members, and how they vote.
        mechanism: draws the labels.
        accounting: "paper" takes the published vote, if the mechanism reads distances.
        classes: the number of classes of the model.

    Returns:
        "none": there is no ensemble; "published": as in the paper, without a proof; "certified".

    Raises:
        ConfigError: the mechanism counts votes and there is no ensemble, or the published vote is
            not defined for this ensemble.
    """
    is_ensemble = config.members > 1
    if mechanism.needs == "votes" and not is_ensemble:
        raise no_votes(mechanism.name)
    if not is_ensemble:
        return "none"
    if accounting != "paper" or mechanism.needs != "distance":
        return "certified"
    check_published_vote(config, classes)
    return "published"


def _shifted_progress(
    on_progress: OnProgress, start: int, size: int, count: int, progress: Progress
) -> None:
    """Report the progress within one piece of the queries as progress among all queries.

    Args:
        on_progress: receives the progress among all queries.
        start: the number of queries before the piece.
        size: the number of queries that the piece has.
        count: the number of all queries.
        progress: the progress on the piece.
    """
    done = start + size * progress.done // max(progress.total, 1)
    on_progress(Progress.of_steps(done, count))
