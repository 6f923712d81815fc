"""The recipe: default regularisation of linear heads, computed only from public constants.

Its strength Lambda is measured in records: one record changes the weights by at most C / Lambda,
where C bounds a record's loss gradient. A larger Lambda certifies labels against more edits, at
less accuracy. Minimisers and plain SGD take the same Lambda (docs/proofs/strength.md).
``scripts/choose_recipe.py`` chose the constants on public data, at revision 837fd68.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agt.errors import ConfigError
from agt.messages import Message
from agt.settings import MAX_BATCHES, TrainingConfig, default_n_max
from agt.training.sensitivity import LinearLoss

RECORDS_PER_STRENGTH = 1000.0  # for few records Lambda is the records divided by this
ROOT_FACTOR = 0.13  # for many records Lambda is this times the square root of the records

# The default records of a batch; u^2 times as many if a unit may have u rows (Lemma 3 of
# docs/proofs/strength.md: batches then stay below their cap).
BATCH_RECORDS = 512

# The default learning rate as a share of the largest at which a step is nonexpansive (two weight
# vectors do not get further apart). It is below 1 to leave room for rounding.
RATE_SHARE = 0.999


def recipe_strength(size: float, classes: int, caution: float = 1.0) -> float:
    """Return Lambda, the default strength of a linear head's regularisation, in records.

    Lambda multiplies |weights|^2 / 2 in an objective that sums the records' losses. It is the
    smaller of size / 1000 and 0.13 sqrt(size), divided by classes - 1. So it grows with the
    records, which certifies labels against more edits; for many records it grows more slowly than
    they do, so that the fit improves, too. With more classes each class has fewer records, and
    Lambda is smaller.

    Args:
        size: the public number of records, at least 1.
        classes: the number of classes, at least 1.
        caution: a public factor on Lambda, ``training.caution``.
    """
    for_few_records = size / RECORDS_PER_STRENGTH
    for_many_records = ROOT_FACTOR * math.sqrt(size)
    heads = max(1, classes - 1)  # two classes share one head, the difference of their scores
    return caution * min(for_few_records, for_many_records) / heads


def resolve_minimiser(training: TrainingConfig, classes: int, size: float) -> TrainingConfig:
    """Return training settings for a regularised loss minimiser, with numbers for all defaults.

    Args:
        training: the settings; those listed in ``by_recipe`` are replaced by numbers. If none is
            listed, ``training`` itself is returned.
        classes: the number of classes.
        size: the public number of records, or one ensemble member's share of them.

    Returns:
        Settings in which weight_decay times the number of records is ``recipe_strength``.
    """
    if not training.by_recipe:
        return training
    # Lemma 1 of docs/proofs/strength.md: weight_decay multiplies |weights|^2 / 2 in an objective
    # with the mean loss, so it is Lambda divided by the records.
    records = _public_records(training, size)
    strength = recipe_strength(records, classes, training.caution)
    # A minimiser uses all records at once and has no learning rate, so the other numbers are 1.
    numbers = {"weight_decay": strength / records, "lr": 1.0, "epochs": 1, "batch.count": 1}
    return with_numbers(training, numbers)


def resolve_sgd(
    training: TrainingConfig, classes: int, size: float, unit_rows: int = 1
) -> TrainingConfig:
    """Return training settings for plain SGD on a linear head, with numbers for all defaults.

    Args:
        training: the settings; those listed in ``by_recipe`` are replaced by numbers. If none is
            listed, ``training`` itself is returned.
        classes: the number of classes.
        size: the public number of records, or one ensemble member's share of them.
        unit_rows: the public cap on the records of one unit (whose data they are).

    Returns:
        Settings in which the learning rates of all steps add up to the number of records divided
        by ``recipe_strength``. Each rate is small enough that a step is nonexpansive (two weight
        vectors do not get further apart).
    """
    if not training.by_recipe:
        return training
    records = _public_records(training, size)
    strength = recipe_strength(records, classes, training.caution)
    # A configured normaliser times the count is the number of records, so the count stays then.
    count = training.batch.count
    if "batch.count" in training.by_recipe and training.batch.normalizer is None:
        count = _recipe_batches(records, unit_rows)
    smoothness = LinearLoss.from_settings(training, classes).smoothness
    # Lemma 2 of docs/proofs/strength.md: with rates of this sum one record changes the weights by
    # at most C / Lambda, as for a minimiser.
    rate_sum = records / strength if strength > 0 else math.inf
    numbers = _sgd_numbers(training, smoothness, rate_sum, records, count)
    return with_numbers(training, numbers)


def _public_records(training: TrainingConfig, size: float) -> float:
    """Return the public number of records according to the settings, at least 1.

    Args:
        training: the training settings. If they have a normaliser (the divisor of a batch's sum),
            the number of records is the normaliser times the number of batches.
        size: the public number of records if there is no normaliser; it may be below 1.
    """
    if training.batch.normalizer is not None:
        size = training.batch.normalizer * training.batch.count
    return max(size, 1.0)


def _recipe_batches(records: float, unit_rows: int) -> int:
    """Return the default number of batches of an epoch, from 1 to ``MAX_BATCHES``.

    Args:
        records: the public number of records.
        unit_rows: the public cap on the records of one unit, all of which are in one batch.
    """
    # Lemma 3 of docs/proofs/strength.md: with 512 unit_rows^2 records in the mean, the size of a
    # batch stays seven standard deviations below its cap.
    batch_records = BATCH_RECORDS * unit_rows**2
    full_batches = int(records / batch_records)
    return min(max(1, full_batches), MAX_BATCHES)


def with_numbers(training: TrainingConfig, numbers: Mapping[str, Any]) -> TrainingConfig:
    """Return training settings in which given numbers replace those left to the recipe.

    The recipe is the defaults that are computed from public constants.

    Args:
        training: the settings; ``by_recipe`` has the names of those left to the recipe.
        numbers: name -> number, for "lr", "epochs", "weight_decay" and "batch.count". Numbers of
            settings that ``by_recipe`` does not list are ignored.
    """
    resolved = {name: numbers[name] for name in training.by_recipe}
    # "batch.count" is a setting of ``training.batch``, the others are of ``training`` itself.
    count = resolved.pop("batch.count", training.batch.count)
    batch = replace(training.batch, count=count)
    return replace(training, by_recipe=(), batch=batch, **resolved)


def recipe_numbers(training: TrainingConfig, names: Iterable[str]) -> dict[str, float | int]:
    """Return the numbers that the recipe (the default settings) chose, for the files of a run.

    Args:
        training: the settings in which numbers have replaced the defaults.
        names: the settings that were left to the recipe: any of "lr", "epochs", "weight_decay" and
            "batch.count".

    Returns:
        "recipe.NAME" -> number, for each name.
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
    """Return default numbers for plain SGD without weight decay, for a given sum of learning rates.

    The epochs are the least with which the rates can reach the sum.

    Args:
        training: the settings; ``by_recipe`` has the names of those that defaults replace.
        smoothness: a bound on the second derivative of the loss in the logit.
        rate_sum: the sum of the learning rates of all steps. It is not used if the epochs are
            configured; the default rate is then the largest safe one.
        records: the public number of records.
        count: the number of batches of an epoch.

    Returns:
        "weight_decay", "lr", "epochs" and "batch.count" -> number. The caller takes those that
        ``by_recipe`` lists.

    Raises:
        ConfigError: the number of epochs is not finite.
    """
    normalizer = training.batch.normalizer
    if normalizer is None:
        normalizer = records / count
    n_max = training.batch.n_max
    if n_max is None:
        n_max = default_n_max(normalizer)
    # A step is nonexpansive for rates up to 2 / (2 weight_decay + smoothness n_max / normalizer).
    curvature = 2 * training.weight_decay + smoothness * (n_max / normalizer)
    max_rate = RATE_SHARE * 2 / curvature
    rate = max_rate
    epochs = training.epochs
    if "epochs" in training.by_recipe:
        largest_usable_rate = max_rate if "lr" in training.by_recipe else training.lr
        rates_of_an_epoch = largest_usable_rate * count
        exact_epochs = rate_sum / rates_of_an_epoch if rates_of_an_epoch > 0 else math.inf
        if not math.isfinite(exact_epochs):
            raise ConfigError(
                Message(
                    "{config:training.caution}={caution:g} with learning rates of at most "
                    "{rate:g} needs more epochs than can be counted: give a larger "
                    "{config:training.caution} or {config:training.lr}",
                    caution=training.caution,
                    rate=largest_usable_rate,
                )
            )
        epochs = max(1, math.ceil(exact_epochs))
        # The epochs were rounded up, so a smaller rate reaches the sum.
        rate = min(max_rate, rate_sum / (epochs * count))
    return {"weight_decay": 0.0, "lr": rate, "epochs": epochs, "batch.count": count}
