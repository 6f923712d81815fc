"""What a training run keeps of its data: what queries need, and none of its records.

``source.json`` has the dataset's configuration with every constant that its file told (``Dataset.settled``), and the
dataset without its records as a saved model keeps it (models/description.py). A frozen encoder is kept beside it. So
certificates, plans and releases about a file of queries need the run's folder alone, wherever the training data is by then.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agt.data.dataset import Dataset, DataSource
from agt.errors import ConfigError
from agt.models.description import FORMAT, dataset_of, describe_dataset
from agt.models.heads import Head, OwnNetwork, from_layers
from agt.models.store import NETWORK, as_json
from agt.problem import Problem, Settings
from agt.settings import build
from agt_cli.papers.encoder import Encoder
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, encoder_of

NAME = "source.json"


@dataclass(frozen=True)
class Kept:
    """What a finished training run says of its data.

    Attributes:
        problem: what was trained, without its records.
        settled: the dataset's configuration, with all constants.
        encoder: that queries pass through, where there is one.
    """

    problem: Problem
    settled: Mapping[str, Any]
    encoder: Encoder | None

    @property
    def source(self) -> DataSource:
        """Reads queries, and nothing else. Raises ConfigError where the dataset's code is not there."""
        source: DataSource = build(self.settled, "dataset")
        return source


def settled(config: Mapping[str, Any], loaded: Dataset) -> dict[str, Any]:
    """The configuration of a dataset, with what only its data could tell.

    Args:
        config: a training run's.
    """
    return {**config["dataset"], **({"settled": loaded.settled} if loaded.settled else {})}


def keep(record: RunRecord, prepared: Prepared, settings: Settings) -> None:
    """Write what ``kept`` reads."""
    source, described = settled(record.config, prepared.loaded), describe_dataset(prepared.problem(settings))
    record.write(NAME, as_json({"format": FORMAT, "name": prepared.dataset.name, "source": source, **described}))
    if prepared.encoder is not None:
        prepared.encoder.save(record)


def kept(finished: FinishedRun, settings: Settings) -> Kept | None:
    """What a run kept; None of a run that was made before runs did.

    Raises:
        ConfigError: source.json is of another format, or its dataset's code is not there.
    """
    if not finished.holds(NAME):
        return None
    try:
        node = json.loads(finished.read(NAME))
        if node["format"] != FORMAT:
            raise ConfigError(f"run={finished.folder}: {NAME} is of format {node['format']}, and this agt reads {FORMAT}")
        dataset, records = dataset_of(node, node["name"])
        run = Kept(Problem(dataset, settings, records=records), dict(node["source"]), None)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"run={finished.folder}: {NAME} cannot be read ({error}): train again") from None
    config = encoder_of(settings)
    return run if config is None else replace(run, encoder=Encoder.read(config, finished))


def kept_head(finished: FinishedRun) -> Head | None:
    """A network of the user's own, as it was trained; None: the head was described in words, which make it again."""
    name = next((name for name in (NETWORK, f"members/000/{NETWORK}") if finished.holds(name)), None)
    if name is None:
        return None
    where = f"model._target_={finished.config['model'].get('_target_')}"
    return OwnNetwork(partial(from_layers, json.loads(finished.read(name))), where)
