"""agt train: configuration -> dataset -> head -> training with certificates -> run record."""

import time
from collections.abc import Mapping
from typing import Any

from agt.quality import Quality, rate_words
from agt_cli.releasing.noise import drawing, noise_words, proved
from agt_cli.releasing.payer import unfinished
from agt_cli.report.console import Console, show
from agt_cli.report.quality import say_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.report_md import unmet
from agt_cli.runs.prepare import RunSettings, fit, prepared_by_all, settings_to_train, write_trained
from agt_cli.runs.resume import checkpoints_of


def configure(config: Mapping[str, Any]) -> RunSettings:
    """Validate the configuration (ConfigError), before any data is read."""
    return settings_to_train(config)


def run(settings: RunSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Train, write the record, and say where it is."""
    prepared = prepared_by_all(settings, record.config, console)
    dataset, digest = prepared.dataset, prepared.loaded.digest
    for note in dataset.notes:
        console.note(f"note: {note}")
    record.environment(data_digest=digest, features_digest=dataset.digest, dataset=dataset.name)
    earlier = unfinished(record, {"data_digest": digest}) if settings.noise and settings.noise.seed is None else []
    for line in earlier:
        console.say(line)
    checkpoints = checkpoints_of(record, settings, prepared, console)
    with drawing(settings, record, prepared, checkpoints) as account:
        started = time.perf_counter()
        model = fit(prepared, settings, console, checkpoints)
        seconds, noise, words = time.perf_counter() - started, model.noise, list(model.words)
        words += noise_words(settings, noise, model.conditions, account) if noise else []
        quality = write_trained(record, prepared, settings, model, seconds, [*words, *earlier])
        if noise:
            record.add_metrics(noise_proved=int(proved(settings, model.conditions)))
        name = record.finish()
    _say(record, dataset.name, words, quality, console)
    for line in unmet(model.conditions):
        console.note(line)
    console.note(f"next: agt certify run={record.folder} digest={record.digest}")
    result = {"metrics": record.metrics, "verdict": quality.verdict, "data_digest": digest, "digest": name}
    return result | ({"words": [*words, *earlier]} if words or earlier else {})


def _say(record: RunRecord, name: str, words: list[str], quality: Quality, console: Console) -> None:
    m = record.metrics
    if quality.verdict:
        console.say(quality.verdict)
    reach = ("k up to", str(m.get("k_with_radius", m["k_max"])))
    if "moved_by_one_k" in m:
        reach = ("moved by one k", show(float(m["moved_by_one_k"]), 5))
    console.table(
        f"trained on {name}",
        ("train records", "test records", "train accuracy", reach[0], "steps", "seconds"),
        [
            (
                str(m["n_train"]),
                str(m["n_test"]),
                rate_words(float(m["train_accuracy"])),
                reach[1],
                str(m["steps"]),
                show(float(m["seconds_training"]), 1),
            )
        ],
    )
    say_quality(console, quality)
    for line in words:
        console.say(line)
    console.say(f"run folder: {record.folder}")
    console.say(f"digest: {record.digest}")
    console.note("keep the digest elsewhere: certify, plan and predict, given digest=..., refuse any other or changed run")
