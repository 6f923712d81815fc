"""The conditions a-g of method.md section 3: how each stands in this run, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
from agt.training.recipe import Recipe

FORMATS.update(  # a relation's own words about it, which its file has
    ball=lambda name: RELATIONS[name].describe_ball(),
    unnested=lambda name: RELATIONS[name].reason_not_nested,
)
# d has one for boxes, for heads in closed form, for the smooth networks of versions up to 0.6, for
# votes
NAMES = {
    "a": ("dense grid",),
    "b": ("each record stands alone",),
    "c": ("public constants",),
    "d": (
        *(
            "inclusion-monotone rules",
            "every step non-expansive",
            "curvature moves as a neighbour does",
        ),
        "a record moves one vote",
    ),
    "e": ("public preprocessing and choices",),
    "f": ("floating point",),
    "g": ("symmetric relation",),
}


@dataclass(frozen=True)
class Condition:
    """One condition: its letter in method.md, what it asks, and what it rests on here.

    It holds unless something is missing; what was only declared is told apart from what was proved
    (agt/facts.py).
    """

    letter: str
    name: str
    evidence: Evidence

    @property
    def standing(self) -> Standing:
        """Proved here, declared, or not held."""
        return self.evidence.standing

    @property
    def held(self) -> bool:
        """Whether a guarantee may rest on it."""
        return self.evidence.held

    @property
    def why(self) -> str:
        """For a stranger to read, the weakest reason first."""
        return self.evidence.why

    def with_facts(self, *facts: Fact) -> "Condition":
        """The same condition, resting on more."""
        return Condition(self.letter, self.name, self.evidence.with_facts(*facts))

    def as_json(self) -> dict[str, Any]:
        """For records: what it is, how it stands, and every fact."""
        return {
            "letter": self.letter,
            "name": self.name,
            "standing": str(self.standing),
            "held": self.held,
            **asdict(self.evidence),
        }

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Condition":
        """Read back what ``as_json`` made.

        Raises:
            ValueError, TypeError, KeyError: it is no such thing, or none that this version
                assesses.
        """
        letter, name = node["letter"], node["name"]
        if name not in NAMES.get(letter, ()):
            raise ValueError(f"no condition is called {letter!r}, {name!r}")
        return cls(letter, name, evidence_from_json(node))


def with_codes(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON value of a condition as ``as_json`` has it: in earlier versions facts were
    text.

    Raises:
        ValueError, TypeError, KeyError: it is no such thing.
    """
    facts = [with_code(fact) if "why" in fact else fact for fact in node["facts"]]
    return {key: value for key, value in node.items() if key != "why"} | {"facts": facts}


def weaker_conditions(
    recorded: Sequence[Condition], now: Sequence[Condition]
) -> tuple[Condition, ...]:
    """Each condition as the weaker of two assessments has it: a run's own, and the one that its
    data allows today.

    What was not held when a run was made does not come to hold because a file beside its data is
    gone. Of two that stand alike, every declaration of either stays: a claim that lost one would
    hide what it rests on.
    """
    earlier = {condition.letter: condition for condition in recorded}
    unknown = evidence(not_held("not_recorded"))
    pairs = [(earlier.get(c.letter, Condition(c.letter, c.name, unknown)), c) for c in now]
    return tuple(_weaker_condition(then, c) for then, c in pairs)


def _weaker_condition(then: Condition, now: Condition) -> Condition:
    if then.standing is not now.standing:
        return then if then.standing.is_weaker_than(now.standing) else now
    known = then.evidence.facts
    return then.with_facts(
        *(f for f in now.evidence.facts if f.standing is not Standing.PROVED and f not in known)
    )


def condition_counts(conditions: Sequence[Condition]) -> dict[str, int]:
    """For metrics.json: how many hold, how many of those rest on declarations, how many there
    are.
    """
    on_declarations = sum(condition.standing is Standing.DECLARED for condition in conditions)
    held = sum(condition.held for condition in conditions)
    return {
        "conditions_held": held,
        "conditions_declared": on_declarations,
        "conditions": len(conditions),
    }


def declarations(conditions: Sequence[Condition]) -> tuple[Declaration, ...]:
    """Everything that was declared and not proved, for whoever reads a claim that rests on it."""
    return tuple(
        Declaration(condition.letter, fact)
        for condition in conditions
        for fact in condition.evidence.declarations
    )


def assess(
    dataset: Dataset,
    recipe: Recipe,
    plan: BatchPlan,
    choices: Fact,
    *,
    every_k: Fact,
    constants: Fact,
    step: tuple[str, Fact],
    rounding: Fact,
    features: Sequence[Fact] = (),
) -> tuple[Condition, ...]:
    """Conditions a-g for one run. A privacy guarantee can rest on its certificates only if all are
    held.

    Args:
        dataset: what was trained on, and what is known of how it was made.
        recipe, plan: how it was trained.
        choices: what the settings were chosen on, for condition e.
        every_k: for which k there are certificates (condition a).
        constants: which public constants the configuration states (``stated_constants``), for
            condition c.
        step: condition d's name for this kind of certificate (``NAMES``), and whether neighbours'
            bounds nest.
        rounding: condition f.
        features: the public feature map, for condition e.
    """
    hashed = proved("batches_by_hash")
    found = {
        "a": evidence(every_k),
        "b": dataset.selection.with_facts(hashed),
        "c": _constants(dataset, recipe.training, plan, constants),
        "d": evidence(step[1]),
        "e": dataset.preprocessing.with_facts(*features, choices),
        "f": evidence(rounding),
        "g": evidence(symmetric_fact(recipe.relation)),
    }
    return named(found, step[0])


def named(found: Mapping[str, Evidence], step: str) -> tuple[Condition, ...]:
    """Conditions by letter, with their names; ``step``: condition d's."""
    return tuple(
        Condition(letter, step if letter == "d" else NAMES[letter][0], what)
        for letter, what in found.items()
    )


def stated_constants(plan: BatchPlan, code: str, **values: Value) -> Fact:
    """Return that the configuration states public constants: the batch plan's, and ``values``."""
    return proved(code, normaliser=plan.normalizer, n_max=plan.n_max, **values)


def _constants(
    dataset: Dataset, training: TrainingConfig, plan: BatchPlan, stated: Fact
) -> Evidence:
    """Condition c.

    A size that the configuration states is declared: code cannot see where the number came from.
    """
    normaliser = plan.normalizer
    if not plan.declared:
        return evidence(not_held("normaliser_from_records", normaliser=normaliser))
    if training.batch.normalizer is not None:
        return evidence(
            declared(
                "normaliser_public", normaliser=normaliser, setting="training.batch.normalizer"
            ),
            stated,
        )
    share = declared(
        "normaliser_of_public_size", normaliser=normaliser, setting="dataset.declared_size"
    )
    return evidence(dataset.size or share, stated)


def shards_fact(members: int, touches: int) -> Fact:
    """Return why a record's shard is its own affair, in an ensemble of so many members.

    Args:
        touches: how many members one k can change.
    """
    if touches == 1:
        return proved("shards_by_hash", members=members)
    return proved("shards_by_hash_several", members=members, touches=touches)


def symmetric_fact(relation: RelationConfig) -> Fact:
    """Condition g, which the relation alone decides."""
    if not RELATIONS[relation.name].symmetric:
        return not_held("one_sided", relation=relation.name)
    if relation.radius is not None:
        return proved("symmetric_within_radius", relation=relation.name, radius=relation.radius)
    return proved("symmetric", relation=relation.name)
