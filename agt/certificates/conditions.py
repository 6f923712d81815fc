"""Conditions a to g of reference.md section 3: whether each holds for a run, and by what evidence.

A differential privacy guarantee may use a run's certificates only if all seven conditions hold.
Nothing here loads NumPy, so that recorded conditions can be read early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from agt.documents import FACTS_AS_TEXT, check_form
from agt.facts import (
    Declaration,
    Evidence,
    Fact,
    Standing,
    Value,
    declared,
    evidence,
    evidence_from_json,
    not_held,
    proved,
)
from agt.relations import RELATIONS
from agt.settings import RelationConfig, TrainingConfig
from agt.templates import FORMATS

if TYPE_CHECKING:
    from agt.data.dataset import Dataset
    from agt.training.batches import BatchPlan
    from agt.training.setup import TrainingSetup

# How the templates of facts print the name of a neighbour relation: by the relation's own texts.
FORMATS.update(
    ball=lambda name: RELATIONS[name].describe_neighbours(),
    unnested=lambda name: RELATIONS[name].reason_not_nested,
)
# Letter -> the names that the condition may have in records. d has one for each kind of
# certificate.
CONDITION_NAMES = {
    "a": ("dense grid",),  # certificates exist for every number of edits from 0 on
    "b": ("each record stands alone",),  # its batch, split and shard depend on its own id only
    "c": ("public constants",),  # normaliser, batch size, steps, schedule, clip level, grid
    "d": (
        # One edit changes what is bounded by at most one step of k:
        "inclusion-monotone rules",  # for parameter boxes
        "every step non-expansive",  # for linear heads in closed form
        "a record moves one vote",  # for votes
        "a record moves each sum by at most 1",  # for noisy sums over numbers
    ),
    "e": (
        "public preprocessing and choices",
    ),  # no private data in scaling, vocabularies, settings
    "f": ("floating point",),  # the bounds cover rounding errors
    "g": ("symmetric relation",),  # a dataset is a neighbour of each of its neighbours
}


@dataclass(frozen=True)
class Condition:
    """One of the seven conditions of a privacy guarantee, with the evidence for it in one run.

    ``model.conditions`` has all seven, in order.

    Attributes:
        letter: its letter in the list of docs/method.md, "a" to "g".
        name: the requirement, one of ``CONDITION_NAMES[letter]``.
        evidence: the facts about the run that decide whether it holds.
    """

    letter: str
    name: str
    evidence: Evidence

    @property
    def standing(self) -> Standing:
        """Return the standing of the weakest fact: proved, declared or not held.

        Declared means that a person stated it in the configuration and no code can check it.
        """
        return self.evidence.standing

    @property
    def held(self) -> bool:
        """Return whether a privacy guarantee may use it, that is if it is proved or declared."""
        return self.evidence.held

    @property
    def why(self) -> str:
        """Return the evidence as text for a report, the weakest fact first."""
        return self.evidence.why

    def with_facts(self, *facts: Fact) -> "Condition":
        """Return a copy of the condition with these facts added to the evidence."""
        return replace(self, evidence=self.evidence.with_facts(*facts))

    def as_json(self) -> dict[str, Any]:
        """Return the condition as a JSON object with letter, name, standing, held and all facts.

        ``from_json`` reads it.
        """
        return {
            "letter": self.letter,
            "name": self.name,
            "standing": str(self.standing),
            "held": self.held,
            **asdict(self.evidence),
        }

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> "Condition":
        """Return the condition that a JSON object of ``as_json`` describes.

        Args:
            node: the JSON object.

        Raises:
            Superseded: a fact is a sentence instead of a code with values.
            ValueError, TypeError, KeyError: the object does not describe a condition that this
                version knows.
        """
        letter = node["letter"]
        name = node["name"]
        if any("why" in fact for fact in node["facts"]):
            check_form(FACTS_AS_TEXT, f"conditions.json (condition {letter})", "train again")
        if name not in CONDITION_NAMES.get(letter, ()):
            raise ValueError(f"there is no condition {letter!r} with the name {name!r}")
        return cls(letter, name, evidence_from_json(node))


def weaker_conditions(
    recorded: Sequence[Condition], now: Sequence[Condition]
) -> tuple[Condition, ...]:
    """Return, for each condition of a privacy guarantee, the weaker of two assessments of one run.

    An assessment is proved, declared by a person, or not held. A condition that was not held when
    the run was made must not become held later because a file about the data was removed. If both
    assessments are the same, the declarations of both are listed, so that a claim names every
    declaration that it depends on.

    Args:
        recorded: the conditions that were recorded when the run was made. A condition that is
            missing is taken as not held.
        now: the conditions as the run's data allows them today. The result has their order.
    """
    recorded_by_letter = {condition.letter: condition for condition in recorded}
    not_recorded = evidence(not_held("not_recorded"))
    result = []
    for condition in now:
        unknown = Condition(condition.letter, condition.name, not_recorded)
        earlier = recorded_by_letter.get(condition.letter, unknown)
        result.append(_weaker_condition(earlier, condition))
    return tuple(result)


def _weaker_condition(earlier: Condition, now: Condition) -> Condition:
    """Return the weaker of two assessments of one condition.

    The standings are, from the strongest to the weakest: proved, declared by a person, not held. If
    both assessments have the same standing, the result is the earlier one, with every fact of today
    added that is not proved and not yet listed.

    Args:
        earlier: the assessment that was recorded.
        now: the assessment of today.
    """
    if earlier.standing is not now.standing:
        return earlier if earlier.standing.is_weaker_than(now.standing) else now
    # They are equally strong. Declarations and failures that are new today are listed, too.
    listed = earlier.evidence.facts
    added = []
    for fact in now.evidence.facts:
        if fact.standing is not Standing.PROVED and fact not in listed:
            added.append(fact)
    return earlier.with_facts(*added)


def condition_counts(conditions: Sequence[Condition]) -> dict[str, int]:
    """Return the numbers of conditions that are proved, declared and not met, and of all.

    Each condition has one of these three statuses. "Declared" means that a person stated it in
    the configuration and no code can check it. ``conditions_held`` is the number of proved and
    declared conditions together, as earlier versions recorded it.
    """
    standings = [condition.standing for condition in conditions]
    proved_count = standings.count(Standing.PROVED)
    declared_count = standings.count(Standing.DECLARED)
    return {
        "conditions_held": proved_count + declared_count,
        "conditions_proved": proved_count,
        "conditions_declared": declared_count,
        "conditions_not_met": len(conditions) - proved_count - declared_count,
        "conditions": len(conditions),
    }


def declarations(conditions: Sequence[Condition]) -> tuple[Declaration, ...]:
    """Return every declared fact of the conditions, with the letter of its condition.

    A declared fact is one that a person stated in the configuration and no code can check.
    """
    listed = []
    for condition in conditions:
        for declared_fact in condition.evidence.declarations:
            listed.append(Declaration(condition.letter, declared_fact))
    return tuple(listed)


def assess(
    dataset: "Dataset",
    setup: "TrainingSetup",
    plan: "BatchPlan",
    choices: Fact,
    *,
    every_k: Fact,
    constants: Fact,
    name_of_condition_d: str,
    step: Fact,
    rounding: Fact,
    features: Sequence[Fact] = (),
) -> tuple[Condition, ...]:
    """Return the seven conditions of a privacy guarantee for one run, with the evidence for each.

    They are conditions a to g of docs/method.md, in this order.

    Args:
        dataset: the data that the model was trained on; it has the evidence about selection and
            preprocessing.
        setup: the settings of the training (loss, steps, clip level, batches, relation, grid of k).
        plan: the batches of the training.
        choices: the fact that says which data the settings were chosen on (condition e:
            preprocessing and settings are public).
        every_k: the fact that says for which numbers of edits k there are certificates (condition
            a: for every k).
        constants: the fact that says which public constants the configuration states, from
            ``stated_constants`` (condition c: all constants are public).
        name_of_condition_d: the name that ``CONDITION_NAMES`` gives condition d for the kind of
            certificate.
        step: the fact whether one edit changes bounds by at most one step of k (condition d).
        rounding: the fact that says whether the bounds cover rounding errors (condition f).
        features: the facts about a public feature map (condition e); none without one.
    """
    hashed = proved("batches_by_hash")  # a record's batch depends on its own id only
    evidence_by_letter = {
        "a": evidence(every_k),  # the grid of k is dense
        "b": dataset.selection.with_facts(hashed),  # each record stands alone
        "c": constants_evidence(dataset, setup.training, plan, constants),  # public constants
        "d": evidence(step),  # one edit is at most one step of k
        "e": dataset.preprocessing.with_facts(*features, choices),  # public preprocessing, choices
        "f": evidence(rounding),  # rounding errors are covered
        "g": evidence(symmetric_fact(setup.relation)),  # the relation is symmetric
    }
    return conditions_from(evidence_by_letter, name_of_condition_d)


def conditions_from(
    evidence_by_letter: Mapping[str, Evidence], step_name: str
) -> tuple[Condition, ...]:
    """Return the conditions of a privacy guarantee with this evidence, in its order.

    Args:
        evidence_by_letter: "a" to "g" -> the evidence for the condition.
        step_name: the name of condition d (one edit moves bounds by at most one step of k) for this
            kind of certificate, one of ``CONDITION_NAMES["d"]``.
    """
    conditions = []
    for letter, condition_evidence in evidence_by_letter.items():
        # The name of condition d depends on the kind of certificate.
        name = step_name if letter == "d" else CONDITION_NAMES[letter][0]
        conditions.append(Condition(letter, name, condition_evidence))
    return tuple(conditions)


def add_facts(
    conditions: Sequence[Condition], facts_of: Mapping[str, tuple[Fact, ...]]
) -> tuple[Condition, ...]:
    """Return conditions with further facts as evidence for some of them.

    Args:
        conditions: the conditions, whose order stays.
        facts_of: the letter of a condition -> the facts to add to it; other conditions stay.
    """
    return tuple(
        condition.with_facts(*facts_of.get(condition.letter, ())) for condition in conditions
    )


def stated_constants(plan: "BatchPlan", code: str, **values: Value) -> Fact:
    """Return the fact, as proved, that the configuration states certain public constants.

    It is evidence for condition c (all constants of the training are public).

    Args:
        plan: the batches; the fact names their normaliser (the number that sums of gradients are
            divided by) and the largest batch size.
        code: the fact's sentence, a key of ``fact_sentences.TEMPLATES``.
        **values: the other values that this sentence needs.
    """
    return proved(code, normaliser=plan.normalizer, n_max=plan.n_max, **values)


def constants_evidence(
    dataset: "Dataset", training: TrainingConfig, plan: "BatchPlan", stated: Fact
) -> Evidence:
    """Return the evidence for condition c: the normaliser and all sizes are public constants.

    Args:
        dataset: has the evidence for its declared size, if there is any.
        training: may set the normaliser (the number that sums of gradients are divided by).
        plan: the batches. ``plan.declared`` says whether the configuration declares a size; without
            one the normaliser was computed from the records, and the condition is not held.
        stated: the fact of ``stated_constants``.
    """
    normaliser = plan.normalizer
    if not plan.declared:
        return evidence(not_held("normaliser_from_records", normaliser=normaliser))
    # A number in the configuration is declared and not proved, because code cannot tell whether
    # somebody computed it from the records.
    if training.batch.normalizer is not None:
        return evidence(
            declared(
                "normaliser_public", normaliser=normaliser, setting="training.batch.normalizer"
            ),
            stated,
        )
    size = dataset.size
    if size is None:  # the dataset has no separate evidence for the declared size
        size = declared(
            "normaliser_of_public_size", normaliser=normaliser, setting="dataset.declared_size"
        )
    return evidence(size, stated)


def shards_fact(members: int, touches: int) -> Fact:
    """Return the fact that a record's shard depends on its own id only.

    It is evidence for condition b of a privacy guarantee: each record is processed by itself.

    A shard is the part of the training records that one member of an ensemble is trained on.

    Args:
        members: the number of members that the ensemble has.
        touches: the number of members that one edit of the data can change.
    """
    if touches == 1:
        return proved("shards_by_hash", members=members)
    return proved("shards_by_hash_several", members=members, touches=touches)


def symmetric_fact(relation: RelationConfig) -> Fact:
    """Return the fact whether a neighbour relation is symmetric.

    Condition g of a privacy guarantee requires that it is.

    It is if a dataset is one edit from each dataset that is one edit from it, as differential
    privacy needs.

    Args:
        relation: the settings of the relation. ``radius`` is set if an edit may change a record's
            values only within a distance.
    """
    if not RELATIONS[relation.name].symmetric:
        return not_held("one_sided", relation=relation.name)
    if relation.radius is not None:
        return proved("symmetric_within_radius", relation=relation.name, radius=relation.radius)
    return proved("symmetric", relation=relation.name)
