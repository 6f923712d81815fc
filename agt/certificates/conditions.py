"""The conditions a-g of method.md section 3: how each stands in this run, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agt.data.dataset import Dataset
from agt.data.declarations import size_fact
from agt.facts import Fact, Grounds, Standing, grounds, grounds_of, proved, void
from agt.relations import RELATIONS
from agt.settings import KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.linear import LinearTrained
from agt.training.recipe import Recipe

NAMES = {  # d has one for boxes, for heads in closed form, for tubes
    "a": ("dense grid",),
    "b": ("each record stands alone",),
    "c": ("public constants",),
    "d": ("inclusion-monotone rules", "every step non-expansive", "curvature moves as a neighbour does"),
    "e": ("public preprocessing and choices",),
    "f": ("floating point",),
    "g": ("symmetric relation",),
}


@dataclass(frozen=True)
class Condition:
    """One condition: its letter in method.md, what it asks, and what it rests on here.

    It holds unless something is missing; what was only declared is told apart from what was proved (facts.py).
    """

    letter: str
    name: str
    grounds: Grounds

    @property
    def standing(self) -> Standing:
        """Proved here, declared, or not held."""
        return self.grounds.standing

    @property
    def held(self) -> bool:
        """Whether a guarantee may rest on it."""
        return self.grounds.held

    @property
    def why(self) -> str:
        """For a stranger to read, the weakest reason first."""
        return self.grounds.why

    def and_(self, *facts: Fact) -> "Condition":
        """The same condition, resting on more."""
        return Condition(self.letter, self.name, self.grounds.and_(*facts))

    def as_json(self) -> dict[str, Any]:
        """For records: what it is, how it stands, and every fact."""
        return {
            "letter": self.letter,
            "name": self.name,
            "standing": str(self.standing),
            "held": self.held,
            "why": self.why,
            **asdict(self.grounds),
        }

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "Condition":
        """Read back what ``as_json`` made.

        Raises:
            ValueError, TypeError, KeyError: it is no such thing, or none that this version assesses.
        """
        letter, name = node["letter"], node["name"]
        if name not in NAMES.get(letter, ()):
            raise ValueError(f"no condition is called {letter!r}, {name!r}")
        return cls(letter, name, grounds_of(node))


def weaker(recorded: Sequence[Condition], now: Sequence[Condition]) -> tuple[Condition, ...]:
    """Each condition as the weaker of two assessments has it: a run's own, and the one that its data allows today.

    What was not held when a run was made does not come to hold because a file beside its data is gone. Of two that stand
    alike, every declaration of either stays: a claim that lost one would hide what it rests on.
    """
    earlier = {condition.letter: condition for condition in recorded}
    unknown = grounds(void("the run's record does not say how it stands"))
    pairs = [(earlier.get(c.letter, Condition(c.letter, c.name, unknown)), c) for c in now]
    return tuple(_weaker(then, c) for then, c in pairs)


def _weaker(then: Condition, now: Condition) -> Condition:
    if then.standing is not now.standing:
        return then if then.standing.weaker(now.standing) else now
    known = then.grounds.facts
    return then.and_(*(f for f in now.grounds.facts if f.standing is not Standing.PROVED and f not in known))


def declarations(conditions: Sequence[Condition]) -> tuple[str, ...]:
    """Everything that was declared and not proved, one sentence each, for whoever reads a claim that rests on it."""
    return tuple(
        f"declared, not proved (condition {condition.letter}): {words}"
        for condition in conditions
        for words in condition.grounds.declarations
    )


def assess(dataset: Dataset, recipe: Recipe, plan: BatchPlan, choices: Fact) -> tuple[Condition, ...]:
    """Conditions a-g for one run with boxes. A privacy guarantee can rest on its certificates only if all are held.

    Args:
        dataset: what was trained on, and what is known of how it was made.
        recipe, plan: how it was trained.
        choices: what the settings were chosen on, for condition e.
    """
    training = recipe.training
    return (
        _condition("a", "dense grid", _dense(recipe.kgrid)),
        _alone(dataset),
        _constants(dataset, training, plan, f"{plan.steps} steps"),
        _condition(
            "d",
            "inclusion-monotone rules",
            void("the mean over what is left does not nest under removals from other datasets")
            if recipe.relation.name == "paper_unlearning"
            else proved("interval products, clamps, activations, the loss, integer sums; gradients clipped elementwise"),
        ),
        _choices(dataset, choices),
        _condition(
            "f",
            "floating point",
            proved(f"{training.dtype}: bounds widened by 2(k+1) tau, gradients summed as integers")
            if training.product == "exact"
            else void(
                "Rump's product of scalars is widened for containment, not proved to nest in its last digits: "
                "use training.product=exact"
            ),
        ),
        _symmetric(recipe.relation),
    )


def assess_linear(
    dataset: Dataset,
    recipe: Recipe,
    trained: LinearTrained,
    constants: str,
    moves: str,
    features: Sequence[Fact],
    choices: Fact,
) -> tuple[Condition, ...]:
    """Conditions a-g for one linear head whose distances are in closed form.

    Args:
        dataset: what was trained on, and what is known of how it was made.
        recipe, trained: how it was trained, and what came of it.
        constants: in words, the public constants beside the batch plan's (condition c).
        moves: in words, why one record moves the head by so little (condition d).
        features: the public feature map, for condition e.
        choices: what the settings were chosen on, for condition e.
    """
    sensitivity = trained.sensitivity
    rounding = f"float64 sums: rounding adds {sensitivity.rounding / sensitivity.rho:.1e} of what one record moves"
    return (
        _condition("a", "dense grid", proved("in closed form: every integer k at once, whatever grid is shown")),
        _alone(dataset),
        _constants(dataset, recipe.training, trained.plan, constants),
        _condition("d", "every step non-expansive", proved(moves)),
        _choices(dataset, choices, features),
        _condition("f", "floating point", proved(f"{rounding}; margins and distances carry their own")),
        _symmetric(recipe.relation),
    )


def assess_tube(
    dataset: Dataset,
    recipe: Recipe,
    plan: BatchPlan,
    constants: str,
    moves: str,
    rounding: str,
    features: Sequence[Fact],
    choices: Fact,
) -> tuple[Condition, ...]:
    """Conditions a-g for one network whose radii come from its curvature (agt/tube).

    Args:
        dataset: what was trained on, and what is known of how it was made.
        recipe, plan: how it was trained.
        constants: in words, the public constants beside the batch plan's (condition c).
        moves: in words, why radii nest (condition d).
        rounding: in words, what it costs (condition f).
        features: the public feature map, for condition e.
        choices: what the settings were chosen on, for condition e.
    """
    end = recipe.kgrid.ks[-1]
    every = proved(f"one recursion has every integer k up to {end}, the grid's end, whatever grid is shown")
    return (
        _condition("a", "dense grid", every),
        _alone(dataset),
        _constants(dataset, recipe.training, plan, constants),
        _condition("d", "curvature moves as a neighbour does", proved(moves)),
        _choices(dataset, choices, features),
        _condition("f", "floating point", proved(f"{rounding}; norms, margins and distances carry their own")),
        _symmetric(recipe.relation),
    )


def _condition(letter: str, name: str, *facts: Fact) -> Condition:
    return Condition(letter, name, grounds(*facts))


def _dense(kgrid: KGridConfig) -> Fact:
    if kgrid.dense:
        return proved(f"the grid is every integer 0..{kgrid.ks[-1]}")
    return void("the grid skips integers: only a query's index in the grid changes by at most 1 between neighbours")


def _alone(dataset: Dataset) -> Condition:
    hashed = proved("batches by keyed hash of the unit's id")
    return Condition("b", "each record stands alone", dataset.selection.and_(hashed))


def _constants(dataset: Dataset, training: TrainingConfig, plan: BatchPlan, steps: str) -> Condition:
    """Condition c. A size that the configuration states is declared: code cannot see where the number came from."""
    if not plan.declared:
        size = void(
            f"the normaliser {plan.normalizer:g} was derived from the number of records, so certificates speak only "
            "of retraining with that same number: declare dataset.declared_size or training.batch.normalizer"
        )
    else:
        given = training.batch.normalizer is not None
        source = "training.batch.normalizer" if given else "dataset.declared_size"
        proof = None if given else dataset.size
        size = proof or size_fact(f"the normaliser {plan.normalizer:g} ({source})")
    stated = proved(f"normaliser {plan.normalizer:g}, n_max {plan.n_max}, {steps}: stated in the configuration")
    return _condition("c", "public constants", size, *([stated] if plan.declared else []))


def _choices(dataset: Dataset, choices: Fact, features: Sequence[Fact] = ()) -> Condition:
    return Condition("e", "public preprocessing and choices", dataset.preprocessing.and_(*features, choices))


def _symmetric(relation: RelationConfig) -> Condition:
    rule = RELATIONS[relation.name]
    why = f"{relation.name}: {rule.ball}"
    fact = proved(why) if rule.symmetric else void(f"{why}; certificates about removals alone")
    return _condition("g", "symmetric relation", fact)
