"""Which of the conditions a to g a release requires, and its refusal if one does not hold.

Nothing here loads NumPy, so that a recorded condition that does not hold is named before a run or
its data is opened. ``agt.mechanisms.judging`` decides by the same function which guarantee a
release may claim.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, cast

from agt import sentences
from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.fact_sentences import NAMING_REMEDY
from agt.facts import evidence, not_held
from agt.messages import Message, joined
from agt.relations import RELATIONS
from agt.release_settings import Need
from agt.settings import Accounting, Counting

Reason = Literal["a", "b", "c", "d", "e", "f", "g", "published_vote"]
"""Why nothing is proved: the condition that does not hold, or a vote that bounds no distance."""

# The letters of the conditions that a mechanism requires, by what it reads of the model: Lemma 1 of
# docs/proofs/judging.md (all, for distances), Lemma 2 of docs/proofs/judging.md (no bounds on
# parameters are needed for votes), Lemma 3 of docs/proofs/judging.md (counts, and nothing)
REQUIRED_CONDITIONS: dict[Need, str] = {
    "distance": "abcdefg",
    "votes": "bceg",
    "counts": "beg",
    "nothing": "eg",
}


class Requiring(Protocol):
    """A release mechanism, as far as it decides which conditions are required.

    Attributes:
        name: the mechanism's name.
        needs: the evidence that the mechanism reads: certified distances, votes, counts, or
            nothing.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> Need: ...


class Requirements(NamedTuple):
    """What a release requires, and what of it does not hold.

    Attributes:
        conditions: all conditions that the release requires.
        reasons: the reasons why nothing is proved; empty if every condition holds.
    """

    conditions: tuple[Condition, ...]
    reasons: tuple[Reason, ...]


def judge_requirements(
    conditions: Sequence[Condition],
    relation: str,
    mechanism: Requiring,
    accounting: Accounting,
    counting: Counting,
    releases_weights: bool,
    published_vote: bool = False,
) -> Requirements:
    """Return the conditions that a release requires of its model, or raise if one fails.

    Args:
        conditions: a to g, as assessed for the model or as its run recorded them.
        relation: the name of the neighbour relation.
        mechanism: the mechanism; which evidence it reads decides which conditions it requires.
        accounting: "rigorous" refuses the release if a required condition does not hold; "paper"
            gives the reasons why nothing is proved.
        counting: the unit of the evidence, "distance" (edits) or "index" (certified values of the
            grid).
        releases_weights: True: weights are released, which "paper" refuses as "rigorous" does,
            because no paper publishes them without a proof.
        published_vote: True: the evidence of an ensemble is computed as in the paper, which proves
            no distance.

    Raises:
        ConfigError: the relation's certificates allow no release (they cover only removals, say),
            or something that is required does not hold. All of it is named, so that training once
            more is enough.

    Formal guarantees
        - If there are no ``reasons``, every required condition is proved or declared to hold.
        - A condition that was not assessed does not hold.
    """
    not_releasable = RELATIONS[relation].reason_not_releasable
    if not_releasable:
        raise ConfigError(sentences.relation_refusal(relation, not_releasable))
    required = _required_conditions(conditions, mechanism.needs, counting)
    failed = [condition for condition in required if not condition.held]
    reasons = [cast(Reason, condition.letter) for condition in failed]
    refusals: list[str | Message] = [refusal_of(condition) for condition in failed]
    if published_vote and mechanism.needs == "distance":
        reasons.append(sentences.PUBLISHED_VOTE)
        refusals.append(sentences.vote_refusal())
    if reasons and (releases_weights or accounting == "rigorous"):
        weights_mechanism = mechanism.name if releases_weights else ""
        raise _refused_release(refusals, weights_mechanism)
    return Requirements(tuple(required), tuple(reasons))


def _refused_release(refusals: Sequence[str | Message], weights_mechanism: str) -> ConfigError:
    """Return the error of a release that is refused.

    Args:
        refusals: the reasons, a text for each. The message has all of them, so that training once
            more is enough to meet all conditions.
        weights_mechanism: the name of the mechanism, if it releases weights; else empty. Then the
            message says how to release without a proof.
    """
    all_refusals = joined(refusals, "\nand ")
    if weights_mechanism:
        return ConfigError(
            Message("mechanism={name}: {refusals}", name=weights_mechanism, refusals=all_refusals)
        )
    return ConfigError(
        Message(
            (
                "{config:unproved=refuse}: {refusals}. Alternatively, use "
                "{config:unproved=allow}, which states the guarantee that the mechanism's paper "
                "claims, without a proof"
            ),
            refusals=all_refusals,
        )
    )


def refusal_of(condition: Condition) -> Message:
    """Return an error message that names a condition that does not hold, and how to meet it."""
    condition_evidence = condition.evidence
    failed_codes = {fact.code for fact in condition_evidence.facts if not fact.held}
    # The sentences of some facts already say what to do. If all of the failed ones do, the refusal
    # needs no remedy of its own.
    names_remedy = failed_codes.issubset(NAMING_REMEDY)
    return sentences.condition_refusal(
        condition.letter,
        condition.name,
        condition_evidence.missing_message,
        names_remedy=names_remedy,
    )


def _required_conditions(
    conditions: Sequence[Condition], needs: Need, counting: Counting
) -> list[Condition]:
    """Return the conditions that a mechanism requires.

    If a required condition was not assessed, it is returned as a condition that does not hold.

    Args:
        conditions: the conditions that were assessed for the model, in any order.
        needs: the evidence that the mechanism reads.
        counting: "index": condition a (a certificate for every k) is not required; "distance": it
            is.
    """
    letters = REQUIRED_CONDITIONS[needs]  # such as "abcdefg"
    # Lemma 4 of docs/proofs/judging.md: the number of certified values of a grid changes by at most
    # 1 between neighbours even if the grid is sparse, so condition a (a dense grid) is not needed.
    if counting == "index":
        letters = letters.replace("a", "")
    assessed = {condition.letter: condition for condition in conditions}
    not_assessed = evidence(not_held("not_assessed"))
    required = []
    for letter in letters:
        as_not_held = Condition(letter, "not assessed", not_assessed)
        required.append(assessed.get(letter, as_not_held))
    return required
