"""The conditions a to g of method.md section 3: whether each holds for a run, and on what evidence.

A privacy guarantee can rest on a run's certificates only if all seven conditions hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agt.data.dataset import Dataset
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
    with_code,
)
from agt.relations import RELATIONS
from agt.settings import RelationConfig, TrainingConfig
from agt.templates import FORMATS
from agt.training.batches import BatchPlan
from agt.training.setup import TrainingSetup

# How templates of facts print the name of a relation: by the relation's own text about itself.
FORMATS.update(
    ball=lambda name: RELATIONS[name].describe_ball(),
    unnested=lambda name: RELATIONS[name].reason_not_nested,
)
CONDITION_NAMES = {
    "a": ("dense grid",),
    "b": ("each record stands alone",),
    "c": ("public constants",),
    "d": (
        "inclusion-monotone rules",  # of boxes
        "every step non-expansive",  # of heads in closed form
        "curvature moves as a neighbour does",  # of smooth networks, in versions up to 0.6
        "a record moves one vote",  # of votes
    ),
    "e": ("public preprocessing and choices",),
    "f": ("floating point",),
    "g": ("symmetric relation",),
}


@dataclass(frozen=True)
class Condition:
    """One of the conditions a to g, with the evidence for it.

    Attributes:
        letter: its letter in method.md, "a" to "g".
        name: what it asks, one of ``CONDITION_NAMES[letter]``.
        evidence: the facts that it rests on in this run.
    """

    letter: str
    name: str
    evidence: Evidence

    @property
    def standing(self) -> Standing:
        """Return whether it is proved, declared or not held."""
        return self.evidence.standing

    @property
    def held(self) -> bool:
        """Return whether a guarantee may rest on it: it is proved or declared."""
        return self.evidence.held

    @property
    def why(self) -> str:
        """Return the evidence as text for a report, the weakest fact first."""
        return self.evidence.why

    def with_facts(self, *facts: Fact) -> "Condition":
        """Return the condition with these facts added to its evidence."""
        return replace(self, evidence=self.evidence.with_facts(*facts))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON value that records hold: letter, name, standing, and every fact."""
        return {
            "letter": self.letter,
            "name": self.name,
            "standing": str(self.standing),
            "held": self.held,
            **asdict(self.evidence),
        }

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> "Condition":
        """Return the condition that ``as_json`` made the JSON value ``node`` of.

        Raises:
            ValueError, TypeError, KeyError: ``node`` describes no condition, or one that this
                version does not assess.
        """
        letter = node["letter"]
        name = node["name"]
        if name not in CONDITION_NAMES.get(letter, ()):
            raise ValueError(f"no condition is called {letter!r}, {name!r}")
        return cls(letter, name, evidence_from_json(node))


def upgrade_json(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a condition's JSON value of any version in today's form, where facts have codes.

    Versions up to ``facts.LAST_IN_WORDS`` recorded facts as text.

    Raises:
        ValueError, TypeError, KeyError: ``node`` describes no condition.
    """
    upgraded = dict(node)
    upgraded.pop("why", None)
    upgraded["facts"] = [with_code(fact) if "why" in fact else fact for fact in node["facts"]]
    return upgraded


def weaker_conditions(
    recorded: Sequence[Condition], now: Sequence[Condition]
) -> tuple[Condition, ...]:
    """Return of each condition the weaker of two assessments.

    A condition that did not hold when a run was made does not come to hold because a file beside
    its data is gone. Of two that stand alike, every declaration of either stays, so that a claim
    hides nothing that it rests on.

    Args:
        recorded: the conditions that the run recorded; one that is missing counts as not held.
        now: the conditions that the run's data allows today, which the result has in this order.
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
    """Return the weaker of two assessments of a condition, or both joined if they stand alike."""
    if earlier.standing is not now.standing:
        return earlier if earlier.standing.is_weaker_than(now.standing) else now
    known = earlier.evidence.facts
    added = [
        fact
        for fact in now.evidence.facts
        if fact.standing is not Standing.PROVED and fact not in known
    ]
    return earlier.with_facts(*added)


def condition_counts(conditions: Sequence[Condition]) -> dict[str, int]:
    """Return the metrics of conditions: how many are proved, declared, not met, and all.

    Each condition is one of the three. ``conditions_held`` counts proved and declared ones
    together, as earlier versions recorded it.
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
    """Return every fact that was declared and not proved, with its condition's letter."""
    found = []
    for condition in conditions:
        found += [Declaration(condition.letter, fact) for fact in condition.evidence.declarations]
    return tuple(found)


def assess(
    dataset: Dataset,
    setup: TrainingSetup,
    plan: BatchPlan,
    choices: Fact,
    *,
    every_k: Fact,
    constants: Fact,
    step: tuple[str, Fact],
    rounding: Fact,
    features: Sequence[Fact] = (),
) -> tuple[Condition, ...]:
    """Assess conditions a to g for one run.

    Args:
        dataset: what was trained on; it has the evidence of its selection and preprocessing.
        setup: how it was trained.
        plan: the batches that it was trained by.
        choices: what the settings were chosen on, for condition e.
        every_k: for which k there are certificates, for condition a.
        constants: which public constants the configuration states (``stated_constants``), for
            condition c.
        step: condition d's name for this kind of certificate (``CONDITION_NAMES``), and the fact
            whether neighbours' bounds nest.
        rounding: whether rounding is accounted for, for condition f.
        features: the facts about the public feature map, for condition e.
    """
    step_name, step_fact = step
    hashed = proved("batches_by_hash")
    evidence_by_letter = {
        "a": evidence(every_k),
        "b": dataset.selection.with_facts(hashed),
        "c": _constants(dataset, setup.training, plan, constants),
        "d": evidence(step_fact),
        "e": dataset.preprocessing.with_facts(*features, choices),
        "f": evidence(rounding),
        "g": evidence(symmetric_fact(setup.relation)),
    }
    return conditions_from(evidence_by_letter, step_name)


def conditions_from(
    evidence_by_letter: Mapping[str, Evidence], step_name: str
) -> tuple[Condition, ...]:
    """Return the conditions with this evidence, in its order.

    Args:
        evidence_by_letter: the evidence for each condition.
        step_name: the name of condition d, which depends on the kind of certificate.
    """
    names = {letter: names[0] for letter, names in CONDITION_NAMES.items()}
    names["d"] = step_name
    return tuple(
        Condition(letter, names[letter], found) for letter, found in evidence_by_letter.items()
    )


def stated_constants(plan: BatchPlan, code: str, **values: Value) -> Fact:
    """Return the proved fact that the configuration states public constants.

    Args:
        plan: whose normaliser and greatest batch size the fact names.
        code: which sentence the fact is, a key of ``fact_sentences.TEMPLATES``.
        **values: what else that sentence takes.
    """
    return proved(code, normaliser=plan.normalizer, n_max=plan.n_max, **values)


def _constants(
    dataset: Dataset, training: TrainingConfig, plan: BatchPlan, stated: Fact
) -> Evidence:
    """Return the evidence for condition c: the normaliser and the sizes are public constants.

    Args:
        dataset: has the evidence of its declared size.
        training: may set the normaliser itself.
        plan: the batches; ``plan.declared`` says whether a size was declared at all.
        stated: the fact of ``stated_constants``.
    """
    normaliser = plan.normalizer
    if not plan.declared:
        return evidence(not_held("normaliser_from_records", normaliser=normaliser))
    # A size that the configuration states is only declared: code cannot see where it came from.
    if training.batch.normalizer is not None:
        return evidence(
            declared(
                "normaliser_public", normaliser=normaliser, setting="training.batch.normalizer"
            ),
            stated,
        )
    declared_size = declared(
        "normaliser_of_public_size", normaliser=normaliser, setting="dataset.declared_size"
    )
    return evidence(dataset.size or declared_size, stated)


def shards_fact(members: int, touches: int) -> Fact:
    """Return the fact that a record's shard depends on its own id alone, for condition b.

    Args:
        members: how many members the ensemble has.
        touches: how many of them one k can change.
    """
    if touches == 1:
        return proved("shards_by_hash", members=members)
    return proved("shards_by_hash_several", members=members, touches=touches)


def symmetric_fact(relation: RelationConfig) -> Fact:
    """Return the fact whether a relation is symmetric, for condition g, which it decides alone."""
    if not RELATIONS[relation.name].symmetric:
        return not_held("one_sided", relation=relation.name)
    if relation.radius is not None:
        return proved("symmetric_within_radius", relation=relation.name, radius=relation.radius)
    return proved("symmetric", relation=relation.name)
