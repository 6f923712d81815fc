"""Warnings for the data owner about a model that was just trained."""

from collections.abc import Iterator

import numpy as np

from agt.data.dataset import Dataset
from agt.data.frames import Features, as_pandas
from agt.data.records import Records
from agt.fit_settings import FIT_ARGUMENTS
from agt.fitted import Fitted
from agt.models.constant_answers import (
    constant_answer_remedy,
    is_nearly_constant,
    one_sided_warning,
)
from agt.models.doubts import (
    count_certified,
    large_feature,
    sample_records,
)
from agt.models.linear_comparison import compare_with_linear_classifier
from agt.models.model import Model
from agt.models.number_votes import NumberVotes


def doubts_of(model: Fitted, x: Features) -> list[str]:
    """Return warnings for the data owner about features and predictions, a sentence each.

    They depend on private records, so they must not be published.

    Args:
        model: a model that was just trained, with its records.
        x: the features or the data frame that were given to ``fit``.
    """
    column_notes = [] if model.columns is None else model.columns.notes(as_pandas(x))
    return [
        *column_notes,
        *counted_size_doubts(model.model.problem.dataset),
        *_grid_doubts(model),
        *_doubts(model),
    ]


def _grid_doubts(model: Fitted) -> Iterator[str]:
    """Yield a warning if the grid of k is the only reason why no label may be released.

    If another condition is not met either, no release is planned, and certificates of some values
    of k are as valid as those of all.

    Args:
        model: a model that was just trained.
    """
    kgrid = model.model.problem.settings.kgrid
    unmet = [condition.letter for condition in model.conditions if not condition.held]
    if unmet == ["a"] and not kgrid.dense:
        yield (
            f"ks={list(kgrid.ks)} leaves out values of k. Certificates for these k are valid, but "
            "model.release refuses labels of this model, because condition a (a dense grid of k) "
            f"is not met: if you want to release labels, train with ks={kgrid.ks[-1]}, one number, "
            'or give model.release(..., counting="index")'
        )


def counted_size_doubts(dataset: Dataset) -> list[str]:
    """Return a warning if the declared size may have been counted, or is far off; or no warning.

    It depends on the number of private records, so it must not be published.
    """
    if dataset.size_is_far:
        return [
            f"declared.size={dataset.declared_size:g} is far from {len(dataset.train):,}, the "
            "number of training records. The model is regularised as one of the declared size "
            "is, so its answers and stable distances may be far from those of a model for your "
            "records: declare a public number near the number of training records"
        ]
    if not dataset.counted_records:
        return []
    return [
        f"declared.size={dataset.declared_size:g} is exactly the number of "
        f"{dataset.counted_records}. If this number was counted, it is not public, and no privacy "
        "guarantee is true: declare a round number that does not depend on the records"
    ]


def _doubts(model: Fitted) -> Iterator[str]:
    """Yield warnings if answers are not certified, features are large, or labels are poor.

    Some of the training records are looked at, evenly spaced (``sample_records``).

    Args:
        model: a model that was just trained, with its records.
    """
    sample = sample_records(model.model.problem.dataset.train)
    certainty = count_certified(model.model, sample)
    if certainty is not None:
        for doubt in (certainty.rounding_warning, certainty.distance_warning):
            if doubt is not None:
                yield doubt.text(FIT_ARGUMENTS)
    yield from large_feature_doubts(sample)
    if model.model.number_votes is not None:
        yield from model.model.problem.dataset.notes
        yield from _number_doubts(model.model.number_votes, sample)
    else:
        yield from one_sided_doubts(model, sample)
        yield from _class_doubts(model, sample)
        yield from _linear_doubts(model.model)


def one_sided_doubts(model: Fitted, sample: Records) -> list[str]:
    """Return a warning if records point in nearly one direction and are scaled to norm 1.

    It depends on private records, so it must not be published.

    Args:
        model: a linear head or an ensemble. With ``columns`` there is no warning, because they say
            how features are scaled.
        sample: some of its training records.
    """
    settings = model.model.problem.settings
    if model.columns is not None or not settings.certificate.normalises_records:
        return []
    doubt = one_sided_warning(sample.features)
    return [] if doubt is None else [doubt.text(FIT_ARGUMENTS)]


def large_feature_doubts(records: Records) -> list[str]:
    """Return a warning if a feature is far outside of [-1, 1]; else an empty list.

    It depends on private records, so it must not be published.

    Args:
        records: training records, their columns coded; some suffice.
    """
    largest = large_feature(records)
    if largest is None:
        return []
    return [
        f"the largest feature is {largest:g} in absolute value: divide the features by public "
        "constants so that all are about 1 at most. For a data frame, give "
        "columns=agt.Columns(...), which encodes its columns"
    ]


def _class_doubts(model: Fitted, sample: Records) -> Iterator[str]:
    """Yield a warning if answers are nearly constant, or no better than the majority class.

    Args:
        model: a model that was just trained.
        sample: some of its training records.
    """
    class_count = len(model.classes)
    count_of_class = np.bincount(sample.labels, minlength=class_count)
    prediction = model.model.predict(sample.features)
    predicted_count_of_class = np.bincount(prediction, minlength=class_count)
    # Frequent: more than half of what each class has if all are equally frequent.
    is_frequent = count_of_class > len(sample) / (2 * len(count_of_class))
    is_absent = predicted_count_of_class == 0
    absent_frequent = model.classes[is_absent & is_frequent].tolist()
    records = _describe_sample(model.model, sample)
    names = model.classes.tolist()  # Python's own numbers and words, as messages print them
    if is_nearly_constant(prediction, sample.labels):
        answer = int(predicted_count_of_class.argmax())
        is_one_sided = bool(one_sided_doubts(model, sample))
        remedy = constant_answer_remedy(model.model.problem.settings, is_one_sided=is_one_sided)
        absent = model.classes[is_absent].tolist()
        constant = "nearly constant"
        if absent:
            constant = f"nearly constant, and never predicts {absent}"
        yield (
            f"the model answers {names[answer]!r} for {predicted_count_of_class[answer]} of "
            f"{records}, of which {count_of_class[answer]} have this label, "
            f"so it is {constant}. {remedy.text(FIT_ARGUMENTS)}"
        )
        return
    if absent_frequent:
        yield (
            f"on {records}, the model never predicts the classes "
            f"{absent_frequent}, "
            "although these classes are common in the training records. So the model is of "
            "little use: change the training settings"
        )
        return
    correct = int((prediction == sample.labels).sum())
    most_frequent = int(count_of_class.max())
    if correct <= most_frequent < len(sample):
        most_frequent_class = names[int(count_of_class.argmax())]
        yield (
            f"the model labels {correct} of {records} correctly, but always answering "
            f"{most_frequent_class!r} would be correct for {most_frequent} of the same "
            "records. So the model is of little use: change the training settings"
        )


def _describe_sample(model: Model, sample: Records) -> str:
    """Return how many training records were looked at, and that there are more, if there are.

    Args:
        model: a model that was just trained.
        sample: some of its training records.
    """
    count = len(model.problem.dataset.train)
    if len(sample) == count:
        return f"{count} training records"
    return f"a sample of {len(sample)} of the {count} training records"


def _linear_doubts(model: Model) -> Iterator[str]:
    """Yield a warning if a linear classifier is clearly better than a network.

    Args:
        model: a model that was just trained.
    """
    comparison = compare_with_linear_classifier(model)
    if comparison is not None and comparison.warning is not None:
        yield comparison.warning.text(FIT_ARGUMENTS)


def _number_doubts(model: NumberVotes, sample: Records) -> Iterator[str]:
    """Yield a warning if the numbers of a model are no better than always the median.

    Args:
        model: a model that was just trained.
        sample: some of its training records.
    """
    if not len(sample):
        return
    errors = model.predict(sample.features) - sample.labels
    rmse = float(np.sqrt(np.mean(errors**2)))
    constant_errors = np.median(sample.labels) - sample.labels
    rmse_of_median = float(np.sqrt(np.mean(constant_errors**2)))
    if rmse >= rmse_of_median > 0:
        yield (
            f"the root mean squared error on {len(sample)} training records is {rmse:.4g}, but "
            f"always answering their median would have {rmse_of_median:.4g}. So the model is of "
            "little use: use more records, fewer members, or a smaller strength"
        )
