"""Which guarantee a release may claim, given the conditions that hold for its model.

    judge_claim(model.conditions, RelationConfig("add_remove"), RandomizedResponse(eps=0.1))

Conditions a to g (docs/reference.md, section 3) are the assumptions of the privacy proof.
``accounting="rigorous"``, the default, refuses a release and names the condition if one fails that
the mechanism requires. ``accounting="paper"`` (published.py) releases as the papers do and claims
no proof. Both refuse a relation whose certificates cover only removals or changed features.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from agt.certificates.conditions import Condition, declarations
from agt.certificates.requirements import Requiring, judge_requirements
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output
from agt.settings import Accounting, Counting, RelationConfig, check_choice

Voting = Literal["none", "certified", "published"]


class Claimable(Requiring, Protocol):
    """A release mechanism: of labels, of one number, of weights, or of constants."""

    @property
    def guarantee(self) -> Guarantee: ...


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
    """Return the claim (the privacy guarantee) that a release may make, or refuse the release.

    Args:
        conditions: the seven assumptions of the privacy proof (docs/reference.md, section 3), as
            assessed for the model that is released from.
        relation: the neighbour relation, with the largest number of rows of one unit.
        mechanism: the mechanism that draws the release.
        accounting: "rigorous" refuses the release if a required condition does not hold; "paper"
            makes a claim that says that nothing is proved.
        counting: what the evidence of a query counts: "distance": how many edits of the training
            data certainly leave its label; "index": how many values of the grid of such numbers are
            certified.
        voting: how the evidence of an ensemble is computed from its members: "certified": with a
            proof; "published": as in the paper, without one; "none": there is no ensemble.
        output: the kind of release, such as labels or weights.
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
    requirements = judge_requirements(
        conditions,
        relation.name,
        mechanism,
        accounting,
        counting,
        releases_weights=output is Output.WEIGHTS,
        published_vote=voting == "published",
    )
    return Claim(
        guarantee=mechanism.guarantee,
        mechanism=mechanism.name,
        relation=relation,
        output=output,
        accounting=accounting,
        counting=counting,
        reasons=requirements.reasons,
        declared=declarations(requirements.conditions),
        noisy=noisy,
        uncounted=Uncounted("call"),
    )
