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
from agt.settings import RelationConfig, RelationName

Accounting = Literal["rigorous", "paper"]
Counting = Literal["distance", "index"]
Voting = Literal["none", "certified", "published"]

RESTS_ON: dict[Need, str] = {"distance": "abcdefg", "votes": "bceg", "nothing": "eg"}
_REMEDY = {
    "a": "train with kgrid=dense, or count steps of the grid instead of records with counting=index",
    "b": "let every record's batch, split and shard depend on its own id: hashed splits, unique ids",
    "c": "declare dataset.declared_size, or training.batch.normalizer, and train again",
    "d": "train with relation=add_remove",
    "e": "scale with public constants, and choose settings on public data",
    "f": "train with training.product=exact",
    "g": "train with relation=add_remove",
}
_PAPER = "or use accounting=paper, which proves nothing"
_COVERED = "proved although accounting=paper: every condition that the mechanism rests on holds here"


class Released(Protocol):
    """What a claim is about: a mechanism, or an aggregate."""

    @property
    def needs(self) -> Need: ...
    @property
    def guarantee(self) -> Guarantee: ...


@dataclass(frozen=True)
class Claim:
    """What may be said about one released label.

    Attributes:
        proved: the guarantee holds; False: nothing is proved, and ``text`` says so.
        text: a sentence for reports.
        neighbours: which datasets are neighbours, in words.
        missing: letters of the conditions that the mechanism rests on and that do not hold.
        declared: what it rests on that was declared and not proved, a sentence each.
    """

    proved: bool
    text: str
    neighbours: str
    missing: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()


def claim(
    conditions: Sequence[Condition],
    relation: RelationConfig,
    mechanism: Released,
    accounting: Accounting = "rigorous",
    counting: Counting = "distance",
    voting: Voting = "none",
) -> Claim:
    """The claim of one query's release, or a refusal.

    Args:
        conditions: a to g of the run that the evidence comes from.
        relation: the run's relation, with the rows that one unit may have.
        counting: what the evidence counts: records, or steps of the grid (``grid_index``).
        voting: how the evidence was made from an ensemble's: ``certified_vote``, ``published_vote``, or no ensemble.

    Raises:
        ConfigError: the relation is one-sided or, under ``rigorous``, a condition that it rests on does not hold.
    """
    if not RELATIONS[relation.name].symmetric:
        raise ConfigError(
            f"relation={relation.name}: condition g (symmetric relation) does not hold: certificates about removals alone "
            f"are for unlearning, and no release mechanism takes them; {_REMEDY['g']}"
        )
    neighbours = neighbours_of(relation)
    needed = _needed(conditions, mechanism, counting)
    missing, said = [c for c in needed if not c.held], declarations(needed)
    shards = _shards(relation, mechanism, voting)
    if not missing and not shards:
        text = f"{mechanism.guarantee} per query for {relation.name} neighbours ({neighbours})"
        return Claim(True, text if accounting == "rigorous" else f"{text}; {_COVERED}", neighbours, (), said)
    if accounting == "rigorous":
        raise ConfigError(f"accounting=rigorous: {refusal(missing[0]) if missing else shards}; {_PAPER}")
    letters = tuple(condition.letter for condition in missing)
    return Claim(False, _disclaimer(mechanism, letters, shards), neighbours, letters, said)


def evidence_of(certificates: Certificates, counting: Counting) -> np.ndarray:
    """[n] int64: what a mechanism sees of each query: its stable distance, or how many steps of the grid it withstands."""
    if counting == "distance":
        return certificates.stable_distance
    if isinstance(certificates, VoteCertificates):
        return certificates.steps
    return grid_index(certificates.ks, certificates.certified)


def neighbours_of(relation: RelationConfig) -> str:
    """Which datasets are neighbours, in words."""
    return RELATIONS[relation.name].neighbours(relation.unit_rows)


def _needed(conditions: Sequence[Condition], mechanism: Released, counting: Counting) -> list[Condition]:
    """The conditions that the mechanism rests on; one that nobody assessed does not hold."""
    known = {condition.letter: condition for condition in conditions}
    unknown = grounds(void("the run does not say whether it holds"))
    return [
        known.get(letter, Condition(letter, "not assessed", unknown))
        for letter in RESTS_ON[mechanism.needs]
        if not (letter == "a" and counting == "index")
    ]


def _shards(relation: RelationConfig, mechanism: Released, voting: Voting) -> str:
    """Why an ensemble's evidence cannot carry a guarantee; empty if it can, or if there is no ensemble."""
    if voting == "published" and mechanism.needs == "distance":
        return (
            "the published ensemble distance (001 Theorem 5.3) sums over all members and is not 1-Lipschitz: "
            "use the certified vote"
        )
    return one_vote_alone(relation.name) if mechanism.needs == "votes" else ""


def one_vote_alone(relation: RelationName) -> str:
    """Why noisy_argmax has no guarantee under this relation; empty if it has."""
    if RELATIONS[relation].touches == 1:
        return ""
    return (
        f"relation={relation} in an ensemble: one edit may take a record out of one shard and put one into another, and so "
        "change two members, while noisy_argmax's noise covers one: use a mechanism that takes the certified vote "
        "(randomized_response, gaussian_margin), or train the members with relation=add_remove"
    )


def refusal(condition: Condition) -> str:
    """Why a condition that does not hold stops a release, and what to do about it."""
    remedy = _REMEDY[condition.letter]
    return f"condition {condition.letter} ({condition.name}) does not hold: {condition.grounds.missing}; {remedy}"


def _disclaimer(mechanism: Released, letters: tuple[str, ...], shards: str) -> str:
    why = []
    if letters:
        which = f"conditions {', '.join(letters)} do" if len(letters) > 1 else f"condition {letters[0]} does"
        why.append(f"{which} not hold")
    if shards:
        why.append(shards.split(":")[0] if "001" in shards else shards)
    return f"NO PROOF OF PRIVACY: {'; '.join(why)}. Published as {mechanism.guarantee} per query"
