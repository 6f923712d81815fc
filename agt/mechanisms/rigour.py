"""Which guarantee a release may claim: the gate between certificates and mechanisms (method.md section 3).

``accounting=rigorous`` (the default) refuses, naming the condition, unless every condition that the mechanism rests on is
held. ``accounting=paper`` runs as published and says that there is no proof. A one-sided relation is refused by both.

Formal guarantees
    What a mechanism rests on. Evidence from certificates: all of a to g. Votes of disjoint shards (noisy_argmax): one
    record changes one member's label, which needs b (its shard is its own affair), c (no constant shared by the members is
    derived from the data), e and g; boxes, and so a, d and f, play no part, as long as a member's training reads nothing
    of the other shards. No evidence (global_sensitivity, exponential_mechanism): the noise covers any two labels, which
    leaves e (nothing else about the data is published) and g.
    Sparse grids, ``counting=index``: evidence is the number of grid values k >= 1 certified from the least on, and 0 if the
    grid starts with k = 0 and that is not certified. If D is certified at the grid's k(1) < ... < k(j), a neighbour is by
    nesting at each k(i) - 1 and, as the boxes of one dataset grow with k, at k(i-1): so at k(1), ..., k(j-1), and the index
    is 1-Lipschitz. If it is positive, some k >= 1 is certified and no neighbour has another label.
    Ensembles. The certified vote counts how many members one k can change (votes.py), so it takes every symmetric relation.
    noisy_argmax's noise covers one vote that changes, and a relation that can change two is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

import numpy as np

from agt.certificates.box import Certificates, grid_index
from agt.certificates.conditions import Condition, declarations
from agt.errors import ConfigError
from agt.facts import grounds, void
from agt.mechanisms.guarantee import Guarantee
from agt.mechanisms.mechanism import Need
from agt.models.ensemble import VoteCertificates
from agt.relations import RELATIONS
from agt.settings import RelationConfig, RelationName, check_choice

Accounting = Literal["rigorous", "paper"]
Counting = Literal["distance", "index"]
Voting = Literal["none", "certified", "published"]

RESTS_ON: dict[Need, str] = {"distance": "abcdefg", "votes": "bceg", "nothing": "eg"}
_REMEDY = {
    "a": "train with kgrid=dense, or count steps of the grid instead of records with counting=index",
    "b": "let every record's batch, split and shard depend on its own id: hashed splits, unique ids",
    "c": "train again with a public constant",
    "d": "train with relation=add_remove",
    "e": "scale with public constants, choose settings on public data, and train again",
    "f": "train with training.product=exact",
    "g": "train with relation=add_remove",
}


class Output(StrEnum):
    """What a release puts out; the value is its name in records."""

    LABELS = "labels"
    NUMBER = "a number"
    WEIGHTS = "weights"


_GIVEN = {  # how a guarantee of each is said
    Output.LABELS: "{} per query",
    Output.NUMBER: "{} for this one number",
    Output.WEIGHTS: "the released weights are {}",
}
_FOLLOWS = {Output.WEIGHTS: ", and so is every label that is computed from them"}


class Guaranteed(Protocol):
    """What a claim is about: a mechanism of labels, of one number, or of weights."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> Need: ...
    @property
    def guarantee(self) -> Guarantee: ...


@dataclass(frozen=True)
class Reason:
    """Why a guarantee cannot rest on some evidence, and what to do about it.

    Attributes:
        why: a clause.
        remedy: in the imperative.
        condition: the letter of the condition that does not hold (method.md section 3); empty: it is about votes.
    """

    why: str
    remedy: str
    condition: str = ""

    def __str__(self) -> str:
        return f"{self.why}; {self.remedy}"


@dataclass(frozen=True)
class Claim:
    """What may be said about a release.

    Attributes:
        guarantee: of one query's label, of the number, or of the weights.
        relation: says which datasets are neighbours.
        output: what is released.
        accounting: what was asked for.
        reasons: why nothing is proved; empty: the guarantee is.
        declared: what it rests on that was declared and not proved, a sentence each.
    """

    guarantee: Guarantee
    relation: RelationConfig
    output: Output = Output.LABELS
    accounting: Accounting = "rigorous"
    reasons: tuple[Reason, ...] = ()
    declared: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether the guarantee holds."""
        return not self.reasons

    @property
    def text(self) -> str:
        """A sentence for reports: the guarantee and its neighbours, or that nothing is proved, and why."""
        given = _GIVEN[self.output].format(self.guarantee)
        if not self.proved:
            return f"NO PROOF OF PRIVACY: {'; '.join(self._missing)}. Published as {given}"
        covered = "" if self.accounting == "rigorous" else _COVERED
        return f"{given} for {neighbours_of(self.relation)}{_FOLLOWS.get(self.output, '')}{covered}"

    @property
    def _missing(self) -> list[str]:
        """The reasons, conditions by their letters alone: a report lists them all."""
        letters = [reason.condition for reason in self.reasons if reason.condition]
        named = f"conditions {', '.join(letters)} do" if len(letters) > 1 else f"condition {''.join(letters)} does"
        others = [reason.why for reason in self.reasons if not reason.condition]
        return [f"{named} not hold", *others] if letters else others


_COVERED = "; proved although accounting=paper: every condition that the mechanism rests on holds here"


def claim(
    conditions: Sequence[Condition],
    relation: RelationConfig,
    mechanism: Guaranteed,
    accounting: Accounting = "rigorous",
    counting: Counting = "distance",
    voting: Voting = "none",
    output: Output = Output.LABELS,
) -> Claim:
    """The claim of a release, or a refusal.

    Args:
        conditions: a to g of the run that the evidence comes from.
        relation: the run's relation, with the rows that one unit may have.
        counting: what the evidence counts: records, or steps of the grid (``grid_index``).
        voting: how the evidence was made from an ensemble's: ``certified_vote``, ``published_vote``, or no ensemble.
        output: what is released.

    Raises:
        ConfigError: the relation is one-sided or, under ``rigorous``, a condition that it rests on does not hold.
    """
    for name, value, choices in (("accounting", accounting, Accounting), ("counting", counting, Counting)):
        check_choice(value, choices, name)
    if not RELATIONS[relation.name].symmetric:
        raise ConfigError(
            f"relation={relation.name}: condition g (symmetric relation) does not hold: certificates about removals alone "
            f"are for unlearning, and no release mechanism takes them; {_REMEDY['g']}"
        )
    needed = _needed(conditions, mechanism, counting)
    reasons = [reason_of(condition) for condition in needed if not condition.held]
    reasons += filter(None, [_reason_of_votes(relation, mechanism, voting)])
    if reasons and output is Output.WEIGHTS:  # no paper publishes them without a proof
        raise ConfigError(f"mechanism={mechanism.name}: {_listed(reasons)}")
    if reasons and accounting == "rigorous":
        raise ConfigError(f"accounting=rigorous: {_listed(reasons)}; or use accounting=paper, which proves nothing")
    return Claim(mechanism.guarantee, relation, output, accounting, tuple(reasons), declarations(needed))


def evidence_of(certificates: Certificates, counting: Counting) -> np.ndarray:
    """[n] int64: what a mechanism sees of each query: its stable distance, or how many steps of the grid it withstands."""
    if counting == "distance":
        return certificates.stable_distance
    if isinstance(certificates, VoteCertificates):
        return certificates.steps
    return grid_index(certificates.ks, certificates.certified)


def neighbours_of(relation: RelationConfig) -> str:
    """Which datasets are neighbours, in words."""
    return f"{relation.name} neighbours ({RELATIONS[relation.name].neighbours(relation.unit_rows)})"


def _needed(conditions: Sequence[Condition], mechanism: Guaranteed, counting: Counting) -> list[Condition]:
    """The conditions that the mechanism rests on; one that nobody assessed does not hold."""
    known = {condition.letter: condition for condition in conditions}
    unknown = grounds(void("the run does not say whether it holds"))
    return [
        known.get(letter, Condition(letter, "not assessed", unknown))
        for letter in RESTS_ON[mechanism.needs]
        if not (letter == "a" and counting == "index")
    ]


def _listed(reasons: Sequence[Reason]) -> str:
    """Every reason, so that one more training mends all of them."""
    return "\nand ".join(map(str, reasons))


def reason_of(condition: Condition) -> Reason:
    """Why a condition that does not hold stops a release."""
    why = f"condition {condition.letter} ({condition.name}) does not hold: {condition.grounds.missing}"
    return Reason(why, _REMEDY[condition.letter], condition.letter)


def _reason_of_votes(relation: RelationConfig, mechanism: Guaranteed, voting: Voting) -> Reason | None:
    """Why an ensemble's evidence cannot carry a guarantee; None if it can, or if there is no ensemble."""
    if voting == "published" and mechanism.needs == "distance":
        return Reason(
            "the published ensemble distance (001 Theorem 5.3) sums over all members and is not 1-Lipschitz",
            "use the certified vote",
        )
    return two_votes_moved(relation.name) if mechanism.needs == "votes" else None


def two_votes_moved(relation: RelationName) -> Reason | None:
    """Why noisy_argmax has no guarantee under this relation; None if it has."""
    if RELATIONS[relation].touches == 1:
        return None
    return Reason(
        f"relation={relation} in an ensemble: one edit may take a record out of one shard and put one into another, and so "
        "change two members, while noisy_argmax's noise covers one",
        "use a mechanism that takes the certified vote (randomized_response, gaussian_margin), or train the members with "
        "relation=add_remove",
    )
