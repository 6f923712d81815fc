"""Answers from weights that were released (agt predict release=FOLDER): the folder and the queries are all there is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.data.blocks import pieces
from agt.errors import ConfigError
from agt.mechanisms.portable import Portable
from agt_cli.report.console import Console
from agt_cli.report.quality import outside_lines
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import predict_report
from agt_cli.runs.publish import LabelTable
from agt_cli.runs.queries import digest_of

KEPT = "the weights were released earlier: these labels spend nothing more"


@dataclass(frozen=True)
class Answering:
    """What is to be answered.

    Attributes:
        folder: of the release.
        release: what lies there.
        inputs: the file of queries.
    """

    folder: Path
    release: Portable
    inputs: Path

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Answering":
        """Open the release that ``release`` names.

        Raises:
            ConfigError: none lies there, another than ``digest``, no queries, or a setting of a release yet to be made.
        """
        folder, inputs = Path(str(config["release"])), config.get("inputs")
        total, mechanism = config.get("total") or {}, config.get("mechanism") or {}
        given = [f"total.{key}" for key, value in total.items() if value]
        given += [f"mechanism.{key}" for key, value in mechanism.items() if value and key != "_target_"]
        for key in (*(key for key in ("run", "seed", "ledger") if config.get(key) is not None), *given):
            raise ConfigError(f"release={folder}: its weights are drawn, and answer as they are: leave out {key}")
        release = Portable.open(folder, digest_of(config, "digest"))
        if inputs is None:
            raise ConfigError(f"release={folder}: name the file of queries, inputs=FILE")
        return cls(folder, release, Path(str(inputs)))

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Label the queries and write the record."""
        release = self.release
        record.environment(release=str(self.folder.resolve()), inputs=str(self.inputs), dataset=release.name)
        queries = release.queries().load_queries(self.inputs)
        for line in outside_lines(queries.outside):
            console.note(line)
        table = LabelTable.of(queries, release.classes, self.inputs)
        with record.opened(table.file) as file:
            told = table.write(file, map(release.labels, pieces(queries.features)))
        path = record.folder / table.file
        record.add_metrics(n_queries=len(queries), proved=1, simulated=0, **release.noise)
        words = [*release.words, KEPT]
        about = f"queries of {self.inputs.name}"
        report = predict_report(release.name, about, release.mechanism, words, f"`{table.file}`", record)
        record.report(report)
        for line in words:
            console.say(line)
        console.say(f"labels: {path}")
        return {"metrics": record.metrics, "claim": words[0], "words": words, "labels": str(path) if told is None else told}
