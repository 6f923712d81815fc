"""The conditions a-g of method.md section 3: which held in this run, and why."""

from dataclasses import dataclass

from agt_cli.data.dataset import Dataset
from agt_cli.schema import KGridConfig, RelationConfig, TrainingConfig
from agt_cli.training.batches import BatchPlan
from agt_cli.training.relations import RELATIONS

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
    """Conditions a-g for one training run. A privacy guarantee can rest on its certificates only if all are held."""
    rule = RELATIONS[relation.name]
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
        Condition(
            "b",
            "each record stands alone",
            dataset.selection.held,
            f"batches by keyed hash of the unit's id; {dataset.selection.why}",
        ),
        Condition(
            "c",
            "public constants",
            plan.declared,
            f"normaliser {plan.normalizer:g}, n_max {plan.n_max}, {plan.steps} steps: stated in the configuration"
            if plan.declared
            else f"the normaliser {plan.normalizer:g} was derived from the number of records, so certificates speak only "
            "of retraining with that same number: declare dataset.declared_size or training.batch.normalizer",
        ),
        Condition(
            "d",
            "inclusion-monotone rules",
            nests,
            "interval products, clamps, ReLU, sigmoid, integer sums; gradients clipped elementwise"
            if nests
            else "the mean over what is left does not nest under removals from other datasets",
        ),
        Condition(
            "e",
            "public preprocessing and choices",
            dataset.preprocessing.held and training.chosen_on == "public",
            f"{dataset.preprocessing.why}; {_CHOSEN[training.chosen_on]}",
        ),
        Condition(
            "f",
            "floating point",
            exact,
            f"{training.dtype}: bounds widened by 2(k+1) tau, gradients summed as integers"
            if exact
            else "Rump's product of scalars is widened for containment, not proved to nest in its last digits: "
            "use training.product=exact",
        ),
        Condition(
            "g",
            "symmetric relation",
            rule.symmetric,
            f"{relation.name}: {rule.ball}" + ("" if rule.symmetric else "; certificates about removals alone"),
        ),
    )
