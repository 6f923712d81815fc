"""Which guarantee a release may claim: the gate between certificates and mechanisms (method.md
section 3).

``accounting=rigorous`` (the default) refuses, naming the condition, unless every condition that the
mechanism rests on is held. ``accounting=paper`` (published.py) runs as published and says that
there is no proof. A one-sided relation is refused by both.

Formal guarantees
    What a mechanism rests on. Evidence from certificates: all of a to g. Votes of disjoint shards
    (noisy_argmax): one record changes one member's label, which needs b (its shard is its own
    affair), c (no constant shared by the members is derived from the data), e and g; boxes, and so
    a, d and f, play no part, as long as a member's training reads nothing of the other shards. No
    evidence (global_sensitivity, exponential_mechanism): the noise covers any two labels, which
    leaves e (nothing else about the data is published) and g. Counts with noise (measurement.py)
    need b as well: no record decides whether another is counted.
    Sparse grids, ``counting=index``: evidence is the number of grid values k >= 1 certified from
    the least on, and 0 if the grid starts with k = 0 and that is not certified. If D is certified
    at the grid's k(1) < ... < k(j), a neighbour is by nesting at each k(i) - 1 and, as the boxes of
    one dataset grow with k, at k(i-1): so at k(1), ..., k(j-1), and the index is 1-Lipschitz. If it
    is positive, some k >= 1 is certified and no neighbour has another label.
    Ensembles. The certified vote counts how many members one k can change
    (agt/certificates/votes.py), and noise on votes covers as many (``Mechanism.covering``), so both
    take every symmetric relation.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol, cast

from agt import sentences
from agt.certificates.conditions import Condition, declarations
from agt.errors import ConfigError
from agt.facts import grounds, not_held
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.claims import Accounting, Claim, Counting, Reason
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.mechanism import Need
from agt.mechanisms.output import Output
from agt.messages import Message, joined
from agt.relations import RELATIONS
from agt.settings import RelationConfig, check_choice

Voting = Literal["none", "certified", "published"]

RESTS_ON: dict[Need, str] = {
    "distance": "abcdefg",
    "votes": "bceg",
    "counts": "beg",
    "nothing": "eg",
}


class Claimable(Protocol):
    """What a claim is about: a mechanism of labels, of one number, of weights, or of constants."""

    name: ClassVar[str]
    needs: ClassVar[Need]

    @property
    def guarantee(self) -> Guarantee: ...


def claim(
    conditions: Sequence[Condition],
    relation: RelationConfig,
    mechanism: Claimable,
    accounting: Accounting = "rigorous",
    counting: Counting = "distance",
    voting: Voting = "none",
    output: Output = Output.LABELS,
    noisy: bool = False,
) -> Claim:
    """The claim of a release that no ledger counts (``Claim.counted_by``), or a refusal.

    Args:
        conditions: a to g of the run that the evidence comes from.
        relation: the run's relation, with the rows that one unit may have.
        counting: what the evidence counts: records, or steps of the grid (``grid_index``).
        voting: how the evidence was made from an ensemble's: ``certified_vote``,
            ``published_vote``, or no ensemble.
        output: what is released.
        noisy: the model was trained with noise.

    Raises:
        ConfigError: the relation's certificates are for something else or, under ``rigorous``, a
            condition that it rests on does not hold.
    """
    for name, value, choices in (
        ("accounting", accounting, Accounting),
        ("counting", counting, Counting),
    ):
        check_choice(value, choices, name)
    if why := RELATIONS[relation.name].no_release:
        raise ConfigError(sentences.relation_refusal(relation.name, why))
    needed = _needed(conditions, mechanism, counting)
    failed = [condition for condition in needed if not condition.held]
    reasons = [cast(Reason, condition.letter) for condition in failed]
    refusals: list[str | Message] = [refusal_of(condition) for condition in failed]
    if voting == "published" and mechanism.needs == "distance":
        reasons.append("published_vote")
        refusals.append(sentences.vote_refusal())
    listed = joined(refusals, "\nand ")  # all of them, so that one more training mends them
    if reasons and output is Output.WEIGHTS:  # no paper publishes them without a proof
        raise ConfigError(Message("mechanism={name}: {listed}", name=mechanism.name, listed=listed))
    if reasons and accounting == "rigorous":
        raise ConfigError(
            Message(
                "accounting=rigorous: {listed}; or use accounting=paper, which proves nothing",
                listed=listed,
            )
        )
    return Claim(
        guarantee=mechanism.guarantee,
        mechanism=mechanism.name,
        relation=relation,
        output=output,
        accounting=accounting,
        counting=counting,
        reasons=tuple(reasons),
        declared=declarations(needed),
        noisy=noisy,
        uncounted=Uncounted("call"),
    )


def refusal_of(condition: Condition) -> Message:
    """Why a condition that does not hold stops a release, and what to do about it."""
    missing = condition.grounds.missing_message
    return sentences.condition_refusal(condition.letter, condition.name, missing)


def _needed(
    conditions: Sequence[Condition], mechanism: Claimable, counting: Counting
) -> list[Condition]:
    """The conditions that the mechanism rests on; one that nobody assessed does not hold."""
    known = {condition.letter: condition for condition in conditions}
    unknown = grounds(not_held("not_assessed"))
    return [
        known.get(letter, Condition(letter, "not assessed", unknown))
        for letter in RESTS_ON[mechanism.needs]
        if not (letter == "a" and counting == "index")
    ]
