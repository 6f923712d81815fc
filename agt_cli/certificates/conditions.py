"""The conditions a-g of method.md section 3: which held in this run, and why."""

from dataclasses import dataclass

from agt_cli.data.dataset import Dataset, Fact
from agt_cli.schema import KGridConfig, RelationConfig, TrainingConfig
from agt_cli.training.batches import BatchPlan
from agt_cli.training.relations import RELATIONS
from agt_cli.training.sensitivity import Sensitivity

_CHOSEN = {
    "public": "the training settings are declared to come from public data or constants",
    "data": "the training settings were chosen by looking at results on this data",
    None: "nobody declared what the training settings were chosen on: training.chosen_on=public if on public data",
}


@dataclass(frozen=True)
class Condition:
    """One condition: its letter in method.md, what it asks, whether it held, and why, for a stranger to read."""

    letter: str
    name: str
    held: bool
    why: str


def assess(
    dataset: Dataset, kgrid: KGridConfig, relation: RelationConfig, training: TrainingConfig, plan: BatchPlan
) -> tuple[Condition, ...]:
    """Conditions a-g for one run with boxes. A privacy guarantee can rest on its certificates only if all are held."""
    exact = training.product == "exact"
    nests = relation.name != "paper_unlearning"
    return (
        Condition(
            "a",
            "dense grid",
            kgrid.dense,
            f"the grid is every integer 0..{kgrid.ks[-1]}"
            if kgrid.dense
            else "the grid skips integers: only a query's index in the grid changes by at most 1 between neighbours",
        ),
        _alone(dataset),
        _constants(plan, f"{plan.steps} steps"),
        Condition(
            "d",
            "inclusion-monotone rules",
            nests,
            "interval products, clamps, ReLU, sigmoid, integer sums; gradients clipped elementwise"
            if nests
            else "the mean over what is left does not nest under removals from other datasets",
        ),
        _choices(dataset, training),
        Condition(
            "f",
            "floating point",
            exact,
            f"{training.dtype}: bounds widened by 2(k+1) tau, gradients summed as integers"
            if exact
            else "Rump's product of scalars is widened for containment, not proved to nest in its last digits: "
            "use training.product=exact",
        ),
        _symmetric(relation),
    )


def assess_linear(
    dataset: Dataset,
    relation: RelationConfig,
    training: TrainingConfig,
    plan: BatchPlan,
    sensitivity: Sensitivity,
    constants: str,
    moves: str,
    features: Fact,
) -> tuple[Condition, ...]:
    """Conditions a-g for one linear head whose distances are in closed form.

    Args:
        constants: in words, the public constants beside the batch plan's (condition c).
        moves: in words, why one record moves the head by so little (condition d).
        features: the public feature map, for condition e.
    """
    return (
        Condition("a", "dense grid", True, "in closed form: every integer k at once, whatever grid is shown"),
        _alone(dataset),
        _constants(plan, constants),
        Condition("d", "every step non-expansive", True, moves),
        _choices(dataset, training, features),
        Condition(
            "f",
            "floating point",
            True,
            f"float64 sums: rounding adds {sensitivity.rounding / sensitivity.rho:.1e} of what one record moves; margins "
            "and distances carry their own",
        ),
        _symmetric(relation),
    )


def _alone(dataset: Dataset) -> Condition:
    held, why = dataset.selection.held, f"batches by keyed hash of the unit's id; {dataset.selection.why}"
    return Condition("b", "each record stands alone", held, why)


def _constants(plan: BatchPlan, steps: str) -> Condition:
    return Condition(
        "c",
        "public constants",
        plan.declared,
        f"normaliser {plan.normalizer:g}, n_max {plan.n_max}, {steps}: stated in the configuration"
        if plan.declared
        else f"the normaliser {plan.normalizer:g} was derived from the number of records, so certificates speak only "
        "of retraining with that same number: declare dataset.declared_size or training.batch.normalizer",
    )


def _choices(dataset: Dataset, training: TrainingConfig, features: Fact | None = None) -> Condition:
    facts = [dataset.preprocessing, *([features] if features else [])]
    chosen = Fact(training.chosen_on == "public", _CHOSEN[training.chosen_on])
    facts = sorted([*facts, chosen], key=lambda fact: fact.held)  # what is missing comes first
    why = "; ".join(fact.why for fact in facts)
    return Condition("e", "public preprocessing and choices", all(fact.held for fact in facts), why)


def _symmetric(relation: RelationConfig) -> Condition:
    rule = RELATIONS[relation.name]
    why = f"{relation.name}: {rule.ball}" + ("" if rule.symmetric else "; certificates about removals alone")
    return Condition("g", "symmetric relation", rule.symmetric, why)
