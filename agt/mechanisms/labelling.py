"""Labels that a mechanism draws from a model's evidence, for whichever queries come.

    labelling = Labelling.judged(model, RandomizedResponse(eps=0.1))
    labelling.claim.lines()                            what is guaranteed of each label
    labelling.labels(features, SystemRandomness())     [n] labels, each of which spends that

Each label is a release of its own, and composition.py adds them up. agt/release.py sees to it that
labels are paid for before they are drawn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.certificates.vote_certificates import VoteCertificates
from agt.data.arrays import gathered, pieces
from agt.errors import ConfigError
from agt.mechanisms.claims import Accounting, Claim, Counting
from agt.mechanisms.judging import Voting, claim
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.published import check_published_vote, published_vote
from agt.messages import Message
from agt.models.model import Model
from agt.numeric import Randomness
from agt.relations import RELATIONS
from agt.training.ensemble import EnsembleConfig
from agt.training.loop import OnProgress, Progress


def evidence_of(certificates: Certificates, counting: Counting) -> np.ndarray:
    """Return [n] int64 the evidence of certified queries.

    Args:
        certificates: of n queries.
        counting: "distance": stable distances; "index": how many steps of the grid each withstands.
    """
    if counting == "distance":
        return certificates.stable_distance
    return certificates.grid_steps


@dataclass(frozen=True)
class Labelling:
    """A model, and the mechanism that its labels pass through.

    Attributes:
        model: the model that answers.
        mechanism: the mechanism that each answer passes through.
        claim: what may be said of each label.
        voting: how the evidence of an ensemble is made.

    Formal guarantees
        - ``judged`` reads public values alone: settings, conditions and the number of classes.
        - ``labels`` and ``drawn`` compute private evidence, and draw.
    """

    model: Model
    mechanism: Mechanism
    claim: Claim
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
        """Judge what may be claimed of each label.

        Args:
            model: the model that answers.
            mechanism: the mechanism, for as many classes as the model has.
            conditions: a to g; None: the model's own.
            accounting: rigorous refuses where a condition does not hold; paper takes an ensemble's
                published vote too, and says where nothing is proved.
            counting: what evidence counts: records, or steps of the grid, as a sparse one needs.

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
                    "give classes={known}; in a configuration, it may also be null",
                    classes=mechanism.classes,
                    known=classes,
                )
            )
        voting = _voting(settings.ensemble, mechanism, accounting, classes)
        mechanism = mechanism.covering(RELATIONS[settings.relation.name].touches)
        conditions = model.conditions if conditions is None else conditions
        granted = claim(
            conditions,
            settings.relation,
            mechanism,
            accounting,
            counting,
            voting,
            noisy=settings.noise is not None,
        )
        return cls(model, mechanism, granted, voting)

    def labels(
        self,
        features: np.ndarray,
        randomness: Randomness,
        on_progress: OnProgress = lambda progress: None,
    ) -> np.ndarray:
        """Certify queries and draw a label for each, which spends the guarantee of each.

        Args:
            features: [n, ...] the queries, as the head takes them.
            randomness: only what ``SystemRandomness`` draws is private.
            on_progress: called as queries are certified.

        Returns:
            [n] int64.
        """
        return gathered(self.drawn(features, randomness, on_progress), len(features))

    def drawn(
        self,
        features: np.ndarray,
        randomness: Randomness,
        on_progress: OnProgress = lambda progress: None,
    ) -> Iterator[np.ndarray]:
        """Yield the labels of queries, piece by piece.

        Each piece is certified and drawn when it is asked for, after those before it.

        Args:
            features: [n, ...] the queries, as the head takes them.
            randomness: only what ``SystemRandomness`` draws is private.
            on_progress: called as queries are certified.

        Yields:
            [.] int64 of consecutive queries, n in all.
        """
        count = len(features)
        start = 0
        for piece in pieces(features):
            on_piece = on_progress
            if len(piece) < count:
                on_piece = partial(_shifted_progress, on_progress, start, len(piece), count)
            prediction, evidence = self.evidence(piece, on_piece)
            yield self.mechanism.release(prediction, evidence, randomness, self.model.max_distance)
            start += len(piece)

    def evidence(
        self, features: np.ndarray, on_progress: OnProgress = lambda progress: None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what the mechanism reads of each query, which is private.

        Args:
            features: [n, ...] the queries, as the head takes them.
            on_progress: called as queries are certified.

        Returns:
            ([n] nominal labels, [n] evidence; of votes for more than two classes [n, C]).
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
    """Return how evidence is made from an ensemble's members.

    Raises:
        ConfigError: the mechanism counts votes and there is no ensemble, or the published vote is
            not for this ensemble.
    """
    is_ensemble = config.members > 1
    if mechanism.needs == "votes" and not is_ensemble:
        raise ConfigError(
            Message(
                "mechanism={name} needs the votes of an ensemble, but this run is a single "
                "model: train with {config:ensemble.members}=T",
                name=mechanism.name,
            )
        )
    if not is_ensemble:
        return "none"
    if accounting != "paper" or mechanism.needs != "distance":
        return "certified"
    check_published_vote(config, classes)
    return "published"


def _shifted_progress(
    on_progress: OnProgress, start: int, size: int, count: int, progress: Progress
) -> None:
    """Report the progress of a piece as that of all queries.

    Args:
        start: how many queries come before the piece.
        size: how many queries the piece has.
        count: how many queries there are in all.
        progress: of the piece.
    """
    done = start + size * progress.done // max(progress.total, 1)
    on_progress(Progress(done, count, done, count))
