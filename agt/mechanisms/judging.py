"""Which guarantee a release may claim, given the conditions that hold for its model.

    judge_claim(model.conditions, RelationConfig("add_remove"), RandomizedResponse(eps=0.1))

Conditions a to g (docs/reference.md, section 3) are the assumptions of the privacy proof.
``accounting="rigorous"``, the default, refuses a release and names the condition if one fails that
the mechanism requires. ``accounting="paper"`` (published.py) releases as the papers do and claims
no proof. Both refuse a relation whose certificates cover only removals or changed features.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol, cast

from agt import sentences
from agt.certificates.conditions import Condition, declarations
from agt.errors import ConfigError
from agt.fact_sentences import NAMING_REMEDY
from agt.facts import evidence, not_held
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.claims import Claim, Reason
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.mechanism import Need
from agt.mechanisms.output import Output
from agt.messages import Message, joined
from agt.relations import RELATIONS
from agt.settings import Accounting, Counting, RelationConfig, check_choice

Voting = Literal["none", "certified", "published"]

# The letters of the conditions that a mechanism requires, by what it reads of the model: Lemma 1 of
# docs/proofs/judging.md (all, for distances), Lemma 2 of docs/proofs/judging.md (no bounds on
# parameters are needed for votes), Lemma 3 of docs/proofs/judging.md (counts, and nothing)
REQUIRED_CONDITIONS: dict[Need, str] = {
    "distance": "abcdefg",
    "votes": "bceg",
    "counts": "beg",
    "nothing": "eg",
}


class Claimable(Protocol):
    """A release mechanism: of labels, of one number, of weights, or of constants.

    Attributes:
        name: the mechanism's name.
        needs: what the mechanism reads of the model: certified distances, votes, counts, or
            nothing.
    """

    name: ClassVar[str]
    needs: ClassVar[Need]

    @property
    def guarantee(self) -> Guarantee: ...


def _refused_release(refusals: Sequence[str | Message], weights_mechanism: str) -> ConfigError:
    """Return the error of a release that is refused.

    Args:
        refusals: why, a text for each reason. All are named, so that training once more is enough
            to meet all conditions.
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
                "{config:unproved=allow}, which states the guarantee that the mechanism's "
                "paper claims, without a proof"
            ),
            refusals=all_refusals,
        )
    )


def judge_claim(
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
        conditions: a to g, the assumptions of the privacy proof (docs/reference.md, section 3), as
            assessed for the model that is released from.
        relation: which datasets are neighbours, and how many rows one unit may have.
        mechanism: the mechanism that draws the release.
        accounting: "rigorous" refuses the release if a required condition does not hold; "paper"
            makes a claim that says that nothing is proved.
        counting: what the evidence of a query counts: "distance": how many edits of the training
            data certainly leave its label; "index": how many values of the grid of such numbers are
            certified.
        voting: how the evidence of an ensemble is computed from its members: "certified": with a
            proof; "published": as in the paper, without one; "none": there is no ensemble.
        output: what is released.
        noisy: the model was trained with noise.

    Returns:
        The claim of one release; ``Claim.with_account`` adds the ledger that counts it.

    Raises:
        ConfigError: the relation's certificates allow no release (they cover only removals, say).
            Or a required condition does not hold, and accounting is "rigorous" or weights are to
            be released.

    Formal guarantees
        - If ``proved`` of the claim is true, every required condition is proved or declared to
          hold.
        - A condition that was not assessed does not hold.
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
    # Weights are refused under "paper", too: no paper publishes them without a proof.
    releases_weights = output is Output.WEIGHTS
    if reasons and (releases_weights or accounting == "rigorous"):
        raise _refused_release(refusals, mechanism.name if releases_weights else "")
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
    """Return an error message that names a condition that does not hold, and how to meet it."""
    found = condition.evidence
    failed_codes = {fact.code for fact in found.facts if not fact.held}
    # The sentences of some facts already say what to do. If all of the failed ones do, the refusal
    # needs no remedy of its own.
    names_remedy = failed_codes.issubset(NAMING_REMEDY)
    return sentences.condition_refusal(
        condition.letter, condition.name, found.missing_message, names_remedy=names_remedy
    )


def _required_conditions(
    conditions: Sequence[Condition], mechanism: Claimable, counting: Counting
) -> list[Condition]:
    """Return the conditions that a mechanism requires.

    A required condition that is not among those assessed is returned as one that does not hold.

    Args:
        conditions: those assessed for the model, in any order.
        mechanism: what it reads of the model decides what it requires.
        counting: "index": condition a, a dense grid of k, is not required.
    """
    letters = REQUIRED_CONDITIONS[mechanism.needs]  # such as "abcdefg"
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
