"""What a record has of a trained model: its files, what is known of its data, how good it is, conditions a-g, a report."""

from collections.abc import Sequence

from agt.data.dataset import Records
from agt.models.ensemble import EnsembleModel
from agt.models.linear import LinearModel
from agt.models.model import Model, accuracy
from agt.models.tube import TubeModel
from agt.quality import Judged, Quality
from agt.unlearning.index import NAME as INDEX
from agt.unlearning.index import Index
from agt.unlearning.keys import Key
from agt_cli.report.quality import judge, quality_section, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.report_md import train_report
from agt_cli.runs.prepare import Prepared, RunSettings, data_files
from agt_cli.runs.source import keep


def write_trained(
    record: RunRecord,
    prepared: Prepared,
    settings: RunSettings,
    model: Model,
    seconds: float,
    lines: Sequence[str] = (),
) -> Quality:
    """Write it all; returns how good it is on the test records.

    Args:
        seconds: that its training took.
        lines: what else its report says.
    """
    dataset = prepared.dataset
    record.environment(data_digest=prepared.loaded.digest, features_digest=dataset.digest, dataset=dataset.name)
    record.environment(data_files=data_files(settings.source))
    model.save(record)
    if isinstance(model, EnsembleModel):
        model.save_shards(record)
    keep(record, prepared, settings)
    with record.opened(INDEX) as file:
        file.writelines(Index.made(prepared.loaded.train, Key.made(record.place)).parts)
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
    about = (settings.relation, settings.certificate, model.conditions)
    record.report(train_report(record, dataset, *about, quality.verdict, quality_section(quality), list(lines)))
    return quality


def _judge(model: Model, test: Records) -> Judged:
    """On the test records; certified only where that takes no time."""
    certificates = model.certify(test.features) if isinstance(model, LinearModel | TubeModel) else None
    distance = None if certificates is None else certificates.stable_distance
    return judge(model, test, "test records", test.labels, model.predict(test.features), distance)
