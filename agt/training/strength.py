"""The recipe of linear heads: how strongly a head is regularised, from public constants alone.

The strength Lambda is a number of records: one record moves a head by at most C / Lambda, so
larger Lambda means longer stable distances and a less accurate head. Minimisers and plain SGD take
the same Lambda. The constants were chosen once by ``scripts/choose_recipe.py`` at revision
837fd68, on public data. Why the two agree: docs/proofs/strength.md.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agt.errors import ConfigError
from agt.messages import Message, Setting
from agt.settings import MOST_BATCHES, TrainingConfig, default_n_max
from agt.training.sensitivity import LinearLoss

RECORDS_PER_STRENGTH = 1000.0  # for few records Lambda is the records divided by this
ROOT_FACTOR = 0.13  # for many records Lambda is this times the square root of the records

# Records of a batch; for units of u rows u^2 times as many (Lemma 3 of docs/proofs/strength.md).
BATCH_RECORDS = 512

RATE_SHARE = 0.999  # of the largest learning rate at which no step expands


def recipe_strength(size: float, classes: int, caution: float = 1.0) -> float:
    """Return Lambda, the recipe's strength in records.

    It grows with the records, so more records mean longer distances; for many records it grows more
    slowly than they do, so they also mean a better fit. It is smaller for more classes, whose heads
    have few records each.

    Args:
        size: the public number of records, at least 1.
        classes: the number of classes.
        caution: public factor of Lambda, the recipe's one setting.
    """
    for_few_records = size / RECORDS_PER_STRENGTH
    for_many_records = ROOT_FACTOR * math.sqrt(size)
    heads = max(1, classes - 1)
    return caution * min(for_few_records, for_many_records) / heads


def refuse_recipe(training: TrainingConfig, certificate: str) -> None:
    """Refuse settings that are left to the recipe, for a certificate that has none.

    Raises:
        ConfigError: a setting is left to the recipe.
    """
    if training.by_recipe:
        raise ConfigError(
            Message(
                "{setting}=recipe: the recipe only covers linear heads, but this is "
                "certificate={certificate}; use a linear head (certificate=stability "
                "{config:model=linear}), or training=generic with {config:training.epochs}, "
                "{config:training.lr} and {config:training.clip} chosen on public data",
                setting=Setting(f"training.{training.by_recipe[0]}"),
                certificate=certificate,
            )
        )


def resolve_minimiser(training: TrainingConfig, classes: int, size: float) -> TrainingConfig:
    """Return the settings of a minimiser with numbers for what they leave to the recipe.

    Args:
        training: as configured; returned unchanged if nothing is left to the recipe.
        classes: the number of classes.
        size: the public number of records, or one ensemble member's share of them.

    Returns:
        Settings whose weight_decay times the records is ``recipe_strength``.
    """
    if not training.by_recipe:
        return training
    # Lemma 1 of docs/proofs/strength.md
    records = _public_records(training, size)
    strength = recipe_strength(records, classes, training.caution)
    numbers = {"weight_decay": strength / records, "lr": 1.0, "epochs": 1, "batch.count": 1}
    return with_numbers(training, numbers)


def resolve_sgd(
    training: TrainingConfig, classes: int, size: float, unit_rows: int = 1
) -> TrainingConfig:
    """Return the settings of plain SGD with numbers for what they leave to the recipe.

    Args:
        training, classes, size: as for ``resolve_minimiser``.
        unit_rows: the public cap on the rows of one unit.

    Returns:
        Settings whose learning rates add up to the records divided by ``recipe_strength``, each
        small enough that no step expands.
    """
    if not training.by_recipe:
        return training
    records = _public_records(training, size)
    strength = recipe_strength(records, classes, training.caution)
    count = training.batch.count
    if "batch.count" in training.by_recipe and training.batch.normalizer is None:
        count = _recipe_batches(records, unit_rows)
    smoothness = LinearLoss.from_settings(training, classes).smoothness
    # Lemma 2 of docs/proofs/strength.md
    rate_sum = records / strength
    numbers = _sgd_numbers(training, smoothness, rate_sum, records, count)
    return with_numbers(training, numbers)


def _public_records(training: TrainingConfig, size: float) -> float:
    """Return the public number of records, at least 1.

    A configured normaliser says how many there are; else ``size`` does.
    """
    if training.batch.normalizer is not None:
        size = training.batch.normalizer * training.batch.count
    return max(size, 1.0)


def _recipe_batches(records: float, unit_rows: int) -> int:
    """Return how many batches an epoch has for so many records, at least 1."""
    # Lemma 3 of docs/proofs/strength.md
    batch_records = BATCH_RECORDS * unit_rows**2
    full_batches = int(records / batch_records)
    return min(max(1, full_batches), MOST_BATCHES)


def with_numbers(training: TrainingConfig, numbers: Mapping[str, Any]) -> TrainingConfig:
    """Return settings with numbers in place of all that they leave to the recipe.

    Args:
        training: as configured.
        numbers: by name: ``lr``, ``epochs``, ``weight_decay`` and ``batch.count``; those that the
            settings do not leave to the recipe are ignored.
    """
    resolved = {name: numbers[name] for name in training.by_recipe}
    count = resolved.pop("batch.count", training.batch.count)
    batch = replace(training.batch, count=count)
    return replace(training, by_recipe=(), batch=batch, **resolved)


def recipe_numbers(training: TrainingConfig, names: Iterable[str]) -> dict[str, float | int]:
    """Return the numbers that the recipe decided, as ``recipe.NAME`` in records.

    Args:
        training: the settings with all numbers resolved.
        names: which settings were left to the recipe; empty: nothing is returned.
    """
    numbers = {
        "lr": training.lr,
        "epochs": training.epochs,
        "weight_decay": training.weight_decay,
        "batch.count": training.batch.count,
    }
    return {f"recipe.{name}": numbers[name] for name in names}


def _sgd_numbers(
    training: TrainingConfig, smoothness: float, rate_sum: float, records: float, count: int
) -> dict[str, Any]:
    """Return the numbers of plain SGD without decay whose learning rates have a given sum.

    Args:
        training: as configured.
        smoothness: bound on the loss's second derivative in the logit.
        rate_sum: what the rates of all steps shall add up to; unused if the epochs are configured.
        records: the public number of records.
        count: the number of batches of an epoch.

    Returns:
        ``weight_decay``, ``lr``, ``epochs`` and ``batch.count``, for ``with_numbers``.
    """
    normalizer = training.batch.normalizer or records / count
    n_max = training.batch.n_max or default_n_max(normalizer)
    # No step expands up to 2 / (2 weight_decay + smoothness n_max / normalizer).
    curvature = 2 * training.weight_decay + smoothness * (n_max / normalizer)
    max_rate = RATE_SHARE * 2 / curvature
    rate = max_rate
    epochs = training.epochs
    if "epochs" in training.by_recipe:
        rate_of_epochs = max_rate if "lr" in training.by_recipe else training.lr
        epochs = max(1, math.ceil(rate_sum / (rate_of_epochs * count)))
        rate = min(max_rate, rate_sum / (epochs * count))
    return {"weight_decay": 0.0, "lr": rate, "epochs": epochs, "batch.count": count}
