"""A trained model's part of a run record: its files, what queries need of the data, how good it is, conditions a-g."""

from agt.data.dataset import Records
from agt.models.ensemble import EnsembleModel
from agt.models.linear import LinearModel
from agt.models.model import Model, accuracy
from agt.quality import Judged, Quality
from agt_cli.report.quality import judge, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings
from agt_cli.runs.source import keep


def write_trained(record: RunRecord, prepared: Prepared, settings: RunSettings, model: Model, seconds: float) -> Quality:
    """Write it all; returns how good it is on the test records.

    Args:
        seconds: that its training took.
    """
    dataset = prepared.dataset
    model.save(record)
    if isinstance(model, EnsembleModel):
        model.save_shards(record)
    keep(record, prepared, settings)
    record.add_metrics(
        train_accuracy=accuracy(model, dataset.train),
        seconds_training=round(seconds, 4),
        n_train=len(dataset.train),
        n_test=len(dataset.test),
        classes=prepared.classes,
        steps=model.plan.steps,
        normalizer=model.plan.normalizer,
        n_max=model.plan.n_max,
        notes=len(dataset.notes),
        **model.metrics,
    )
    quality = write_quality(record, _judge(model, dataset.test), "test_")
    record.conditions(model.conditions)
    return quality


def _judge(model: Model, test: Records) -> Judged:
    """On the test records; certified only where that takes no time."""
    certificates = model.certify(test.features) if isinstance(model, LinearModel) else None
    distance = None if certificates is None else certificates.stable_distance
    return judge(model, test, "test records", test.labels, model.predict(test.features), distance)
