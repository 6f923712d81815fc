"""Which guarantee a release may claim: the gate between certificates and mechanisms.

    claim(model.conditions, RelationConfig("add_remove"), RandomizedResponse(eps=0.1))

``accounting=rigorous`` (the default) refuses, naming the condition, unless every condition holds
that the mechanism requires. ``accounting=paper`` (published.py) runs as published and says that
there is no proof. A one-sided relation is refused by both.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol, cast

from agt import sentences
from agt.certificates.conditions import Condition, declarations
from agt.errors import ConfigError
from agt.fact_sentences import NAMING_REMEDY
from agt.facts import evidence, not_held
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.claims import Accounting, Claim, Counting, Reason
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.mechanism import Need
from agt.mechanisms.output import Output
from agt.messages import Message, joined
from agt.relations import RELATIONS
from agt.settings import RelationConfig, check_choice

Voting = Literal["none", "certified", "published"]

# Lemma 1 of docs/proofs/judging.md for distances, Lemma 2 of docs/proofs/judging.md for votes,
# Lemma 3 of docs/proofs/judging.md for counts and for nothing
REQUIRED_CONDITIONS: dict[Need, str] = {
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
    """Return the claim of a release that no ledger counts yet, or refuse the release.

    Args:
        conditions: a to g of the run that the evidence comes from.
        relation: the run's relation, with the rows that one unit may have.
        mechanism: what is released with.
        accounting: rigorous refuses where a condition does not hold; paper says that nothing is
            proved.
        counting: what the evidence counts: records, or steps of the grid.
        voting: how the evidence was made from an ensemble's members: "certified" or "published";
            "none": there is no ensemble.
        output: what is released.
        noisy: the model was trained with noise.

    Returns:
        The claim of one release; ``Claim.counted_by`` puts it on an account.

    Raises:
        ConfigError: the relation's certificates are for something else or, under ``rigorous``, a
            required condition does not hold.

    Formal guarantees
        - A claim whose ``proved`` is true rests on conditions that all hold or are declared.
        - A condition that nobody assessed does not hold.
    """
    check_choice(accounting, Accounting, "accounting")
    check_choice(counting, Counting, "counting")
    not_releasable = RELATIONS[relation.name].reason_not_releasable
    if not_releasable:
        raise ConfigError(sentences.relation_refusal(relation.name, not_releasable))
    required = _required_conditions(conditions, mechanism, counting)
    failed = [condition for condition in required if not condition.held]
    reasons = [cast(Reason, condition.letter) for condition in failed]
    refusals: list[str | Message] = [refusal_of(condition) for condition in failed]
    if voting == "published" and mechanism.needs == "distance":
        reasons.append("published_vote")
        refusals.append(sentences.vote_refusal())
    # All of them are named, so that one more training mends them.
    all_refusals = joined(refusals, "\nand ")
    if reasons and output is Output.WEIGHTS:  # no paper publishes them without a proof
        raise ConfigError(
            Message("mechanism={name}: {refusals}", name=mechanism.name, refusals=all_refusals)
        )
    if reasons and accounting == "rigorous":
        raise ConfigError(
            Message(
                "accounting=rigorous: {refusals}; or use accounting=paper, which proves nothing",
                refusals=all_refusals,
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
        declared=declarations(required),
        noisy=noisy,
        uncounted=Uncounted("call"),
    )


def refusal_of(condition: Condition) -> Message:
    """Return why a condition that does not hold stops a release, and what to do about it."""
    found = condition.evidence
    failed_codes = {fact.code for fact in found.facts if not fact.held}
    return sentences.condition_refusal(
        condition.letter,
        condition.name,
        found.missing_message,
        names_remedy=failed_codes <= NAMING_REMEDY,
    )


def _required_conditions(
    conditions: Sequence[Condition], mechanism: Claimable, counting: Counting
) -> list[Condition]:
    """Return the conditions that a mechanism requires; one that was not assessed does not hold."""
    known = {condition.letter: condition for condition in conditions}
    not_assessed = evidence(not_held("not_assessed"))
    letters = REQUIRED_CONDITIONS[mechanism.needs]
    if counting == "index":  # Lemma 4 of docs/proofs/judging.md: a sparse grid is what a is about
        letters = letters.replace("a", "")
    return [
        known.get(letter, Condition(letter, "not assessed", not_assessed)) for letter in letters
    ]
