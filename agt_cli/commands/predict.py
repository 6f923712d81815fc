"""agt predict: a finished training run and a file of queries -> labels that may be published, with their guarantee."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Any

from pydantic import Field, InstanceOf

from agt.errors import ConfigError
from agt.mechanisms.randomness import Randomness, SeededRandomness, SystemRandomness
from agt.mechanisms.rigour import Accounting, Counting, Output
from agt.mechanisms.weights import ReleaseWeights
from agt.settings import schema, validate
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import predict_report
from agt_cli.runs.forecast import forecast
from agt_cli.runs.mechanisms import MechanismConfig, TotalConfig
from agt_cli.runs.prepare import only_keys
from agt_cli.runs.publish import prepare_publication
from agt_cli.runs.queries import TrainedRun
from agt_cli.runs.released import Answering
from agt_cli.runs.spending import Spending, of_run, spending, unfinished

OF_RUNS = ("run", "release", "inputs", "digest", "compute", "output_dir")
KEYS = (*OF_RUNS, "mechanism", "total", "accounting", "counting", "seed")


@schema
class PredictConfig:
    """What is to be released.

    Attributes:
        trained: the run, and the queries.
        mechanism: with its budget.
        accounting, counting: as in ``agt.mechanisms.release.prepare_labels``.
        seed: of a simulation; None: the operating system draws.
    """

    trained: InstanceOf[TrainedRun]
    mechanism: InstanceOf[MechanismConfig]
    accounting: Accounting = "rigorous"
    counting: Counting = "distance"
    seed: Annotated[int, Field(ge=0)] | None = None

    def __post_init__(self) -> None:
        for key, usual in (("accounting", "rigorous"), ("counting", "distance")):
            if self.mechanism.kind is ReleaseWeights and getattr(self, key) != usual:
                raise ConfigError(
                    f"{key}={getattr(self, key)}: mechanism=release_weights reads no stable distance: leave it out"
                )


def configure(config: Mapping[str, Any]) -> PredictConfig | Answering:
    """Validate the settings, the budget and the run, or the release, before any data is read."""
    only_keys(config, KEYS)
    if config.get("release") is not None:
        return Answering.of(config)
    if config.get("run") is None:
        raise ConfigError("run: a value is required; give run=VALUE, or release=FOLDER of weights released earlier")
    mechanism = MechanismConfig.of(config.get("mechanism"), validate(TotalConfig, config.get("total"), "total"))
    chosen = {key: config.get(key) for key in ("accounting", "counting", "seed")}
    return validate(PredictConfig, {"trained": TrainedRun.of(config), "mechanism": mechanism, **chosen}, "")


def run(config: PredictConfig | Answering, record: RunRecord, console: Console) -> dict[str, Any]:
    """Prepare the release, say on disk what it spends, draw it and write it; or answer from one that was made."""
    if isinstance(config, Answering):
        return config.run(record, console)
    randomness: Randomness = SystemRandomness() if config.seed is None else SeededRandomness(config.seed)
    simulated, trained = randomness.simulated, config.trained
    opened = trained.open(record, console)
    count, most = len(opened.queries), config.mechanism.total.queries
    if most is not None and count > most:
        raise ConfigError(f"the file holds {count} queries and total.queries is {most}: raise it, or cut the file")
    earlier = [] if simulated else unfinished(record, of_run(trained.finished))
    for line in earlier:
        console.say(line)

    publication = prepare_publication(config.mechanism, opened, config.accounting, config.counting, record, console)
    release, name = publication.release, publication.mechanism
    claim, dataset, words = release.claim, opened.dataset.name, publication.words(simulated)
    proved = claim.proved and not simulated
    record.conditions(opened.conditions)
    record.add_metrics(**publication.metrics, proved=int(proved), simulated=int(simulated), **claim.guarantee.parameters)
    for line in [] if console.quiet else forecast(opened, publication, config.mechanism.total, config.counting):
        console.note(line)
    about = Spending(claim.output, name, str(claim.guarantee), release.spent, count, dataset, simulated)
    # Whatever can fail has had its chance; from here on what was spent is on disk.
    with nullcontext() if publication.earlier else spending(record, of_run(trained.finished), about):
        lines, result = publication.write(release.draw(randomness))
        publishable = publication.files if proved else None
        report = predict_report(dataset, trained.words, name, [*lines, *words, *earlier], publishable, record)
        record.report(report)
        digest = record.finish()

    for line in (*lines, *words):
        console.say(line)
    if claim.output is not Output.NUMBER:
        console.say(f"labels: {record.folder / 'labels.csv'}")
    result = {"metrics": record.metrics, "claim": words[0], "words": [*words, *earlier], **result}
    if claim.output is Output.WEIGHTS and not publication.earlier:  # a later call can ask for exactly these
        console.say(f"digest: {digest}")
        result["digest"] = digest
    return result
