"""agt train: configuration -> dataset -> head -> training with bounds -> run record."""

import time
from collections.abc import Mapping
from typing import Any

from agt_cli.certificates.conditions import assess
from agt_cli.report.console import Console, show
from agt_cli.report.record import RunRecord
from agt_cli.report.report_md import train_report
from agt_cli.tasks.prepare import Settings, accuracy, prepare, settings_of
from agt_cli.training.agt import Progress, train


def configure(config: Mapping[str, Any]) -> Settings:
    """Validate the configuration (ConfigError), before any data is read."""
    return settings_of(config)


def run(settings: Settings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Train, write the record, and say where it is."""
    prepared = prepare(settings, console)
    dataset, ks = prepared.dataset, settings.kgrid.ks
    record.environment(data_digest=prepared.loaded.digest, features_digest=dataset.digest, dataset=dataset.name)
    started = time.perf_counter()
    with console.progress(f"training, k = {ks[0]}..{ks[-1]} ({len(ks)} values)") as report:

        def on_progress(at: Progress) -> None:
            report(at.step, at.steps, at.done, at.total)

        trained = train(
            prepared.head,
            prepared.classes,
            dataset.train,
            dataset.declared_size,
            settings.training,
            settings.relation,
            ks,
            settings.compute,
            on_progress,
        )
    seconds = time.perf_counter() - started
    record.model(ks, trained.nominal, trained.lower, trained.upper)
    record.add_metrics(
        train_accuracy=accuracy(prepared, settings, trained.nominal, dataset.train),
        test_accuracy=accuracy(prepared, settings, trained.nominal, dataset.test),
        seconds_training=round(seconds, 4),
        n_train=len(dataset.train),
        n_test=len(dataset.test),
        classes=prepared.classes,
        parameters=sum(tensor.numel() for tensor in trained.nominal.values()),
        steps=trained.plan.steps,
        normalizer=trained.plan.normalizer,
        n_max=trained.plan.n_max,
        k_count=len(ks),
        k_max=ks[-1],
    )
    conditions = assess(dataset, settings.kgrid, settings.relation, settings.training, trained.plan)
    record.conditions(conditions)
    record.write("report.md", train_report(record, dataset, settings.relation, conditions).encode())
    _say(record, dataset.name, console)
    return {"metrics": record.metrics, "data_digest": prepared.loaded.digest}


def _say(record: RunRecord, name: str, console: Console) -> None:
    m = record.metrics
    console.table(
        f"trained on {name}",
        ("train records", "test records", "train accuracy", "test accuracy", "k up to", "steps", "seconds"),
        [
            (
                str(m["n_train"]),
                str(m["n_test"]),
                show(float(m["train_accuracy"])),
                show(float(m["test_accuracy"])),
                str(m["k_max"]),
                str(m["steps"]),
                show(float(m["seconds_training"]), 1),
            )
        ],
    )
    console.say(f"run folder: {record.folder}")
    console.note(f"next: agt certify run={record.folder}")
