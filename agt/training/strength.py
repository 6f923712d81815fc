"""The recipe's place between accuracy and stable distance, from public constants alone: how
strongly a head is held back.

Let B be the number of records declared. A head that minimises sum_i l_i + (Lambda / 2) |theta|^2
moves by at most C / Lambda when one record comes or goes, so Lambda is a number of records: margins
of size 1 are worth Lambda / C of them. Plain SGD from 0 whose rates add up to B / Lambda moves by
the same C / Lambda, is held back in the same directions, and by less: at the same accuracy its
distances are longer. So both certificates take one Lambda.

    Lambda = min(B / ``ONSET``, ``FACTOR`` sqrt B) / (classes - 1)

grows with B, so that more records mean longer distances; for large B more slowly than B, so that
they also mean a better fit; and one-against-the-rest heads of several classes, each with few
records of its own, are held back less. The form and the constants were chosen once by
``scripts/choose_recipe.py`` at revision 837fd68, on public data.

Nothing here reads a record: what is settled depends on the certificate, B, the classes and the
public cap on a unit's rows. Where no size is declared B is the actual number of records, and
condition c does not hold, as without the recipe.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agt.errors import ConfigError
from agt.messages import Message, Setting
from agt.settings import MOST_BATCHES, TrainingConfig, default_n_max
from agt.training.sensitivity import LinearLoss

ONSET, FACTOR = 1000.0, 0.13

BATCH = 512
"""Records of a batch; for units of u rows u^2 times as many. Even if every unit has u rows, a batch
then stays 7 standard deviations below n_max: 0.1 b + 6 sqrt b against sqrt(b u), b = 512 u^2.
"""

SHARE = 0.999  # of the largest learning rate that the proof allows


def strength(size: float, classes: int, caution: float = 1.0) -> float:
    """Lambda, in records.

    Args:
        size: B, at least 1.
        classes: how many there are.
        caution: public factor of Lambda: the one knob.
    """
    return caution * min(size / ONSET, FACTOR * math.sqrt(size)) / max(1, classes - 1)


def refuse_recipe(training: TrainingConfig, certificate: str) -> None:
    """Raise ConfigError where settings are left to the recipe, which has none for this
    certificate.
    """
    if training.by_recipe:
        raise ConfigError(
            Message(
                "{setting}=recipe: the recipe is for linear heads, and this is "
                "certificate={certificate}: use a linear head (certificate=stability "
                "{config:model=linear}), or give training=generic and {config:training.epochs}, "
                "{config:training.lr} and {config:training.clip} as chosen on public data",
                setting=Setting(f"training.{training.by_recipe[0]}"),
                certificate=certificate,
            )
        )


def resolve_minimiser(training: TrainingConfig, classes: int, size: float) -> TrainingConfig:
    """Return the settings of a minimiser with numbers for what they leave to the recipe.

    Args:
        training: as configured; returned as it is where it leaves nothing to the recipe.
        classes: how many there are.
        size: B: the records declared, or one member's share of them.
    """
    if not training.by_recipe:
        return training
    records = _counted_records(training, size)
    force = strength(records, classes, training.caution)
    numbers = {"weight_decay": force / records, "lr": 1.0, "epochs": 1, "batch.count": 1}
    return with_numbers(training, numbers)


def resolve_sgd(
    training: TrainingConfig, classes: int, size: float, unit_rows: int = 1
) -> TrainingConfig:
    """Return the settings of plain SGD with numbers for what they leave to the recipe.

    Args:
        training, classes, size: as for ``resolve_minimiser``.
        unit_rows: the public cap on the rows of one unit.
    """
    if not training.by_recipe:
        return training
    records = _counted_records(training, size)
    force = strength(records, classes, training.caution)
    return with_numbers(training, _sgd(training, classes, force, records, unit_rows))


def _counted_records(training: TrainingConfig, size: float) -> float:
    """Return B: what a configured normaliser stands for, else the size given; at least 1."""
    if training.batch.normalizer is not None:
        size = training.batch.normalizer * training.batch.count
    return max(size, 1.0)


def with_numbers(training: TrainingConfig, numbers: Mapping[str, Any]) -> TrainingConfig:
    """The settings with these numbers, by name, for what they leave to the recipe."""
    left = {name: numbers[name] for name in training.by_recipe}
    count = left.pop("batch.count", training.batch.count)
    return replace(training, by_recipe=(), batch=replace(training.batch, count=count), **left)


def numbers_of(training: TrainingConfig, left: Iterable[str]) -> dict[str, float | int]:
    """``recipe.NAME`` -> what was settled for each name that was left to the recipe; nothing
    where none was.
    """
    numbers = {"lr": training.lr, "epochs": training.epochs, "weight_decay": training.weight_decay}
    numbers["batch.count"] = training.batch.count
    return {f"recipe.{name}": numbers[name] for name in left}


def _sgd(
    training: TrainingConfig, classes: int, force: float, size: float, unit_rows: int
) -> dict[str, Any]:
    """Rates that add up to ``size / force``, each as large as the proof allows; few epochs,
    since batches are many.
    """
    count = training.batch.count
    if "batch.count" in training.by_recipe and training.batch.normalizer is None:
        count = min(max(1, int(size / (BATCH * unit_rows**2))), MOST_BATCHES)
    return rates(training, LinearLoss.of(training, classes).smoothness, size / force, size, count)


def rates(
    training: TrainingConfig, curvature: float, way: float, size: float, count: int
) -> dict[str, Any]:
    """Numbers of plain SGD, without decay: the rates add up to ``way``, each at most what no step
    swings beyond.

    Args:
        curvature: bound on the mean loss's second derivative, per unit of the features' second
            moment.
        size: records.
        count: batches of an epoch.
    """
    of_batch = training.batch.normalizer or size / count
    crowd = (training.batch.n_max or default_n_max(of_batch)) / of_batch
    largest = SHARE * 2 / (2 * training.weight_decay + curvature * crowd)
    if "epochs" not in training.by_recipe:
        return {"weight_decay": 0.0, "lr": largest, "epochs": training.epochs, "batch.count": count}
    epochs = max(
        1, math.ceil(way / ((largest if "lr" in training.by_recipe else training.lr) * count))
    )
    return {
        "weight_decay": 0.0,
        "lr": min(largest, way / (epochs * count)),
        "epochs": epochs,
        "batch.count": count,
    }
