"""Answer queries from weights that were released earlier.

This module imports neither PyTorch nor mechanisms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt import sentences
from agt.data.arrays import pieces
from agt.errors import ConfigError
from agt.models.portable import Portable
from agt_cli.configuration import read_digest_setting
from agt_cli.releasing.answer_quality import score_for_owner
from agt_cli.releasing.label_table import LabelTable, NumberTable, public_names
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import id_lines, outside_lines, release_report


@dataclass(frozen=True)
class PortableAnswers:
    """agt predict release=FOLDER: labels from released weights, without the run and its data.

    Attributes:
        folder: the folder of released weights.
        release: its content.
        inputs: the file of queries.
        force: answer queries even if they look like another population's.
    """

    folder: Path
    release: Portable
    inputs: Path
    force: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "PortableAnswers":
        """Read the folder that the setting ``release`` names, and check the other settings.

        Args:
            config: the configuration of agt predict.

        Raises:
            ConfigError: there is no such folder, or its digest is not ``digest``; no queries are
                given; or a setting is given that only a release from a run has.
        """
        folder = Path(str(config["release"]))
        inputs = config.get("inputs")
        given = [key for key in ("run", "seed", "ledger") if config.get(key) is not None]
        given += [f"total.{key}" for key, value in (config.get("total") or {}).items() if value]
        mechanism = config.get("mechanism") or {}
        given += [
            f"mechanism.{key}" for key, value in mechanism.items() if value and key != "_target_"
        ]
        if given:
            setting = given[0]
            raise ConfigError(
                f"release={folder}: released weights answer without further noise, so the "
                f"setting {setting}=... has no effect: leave it out"
            )
        release = Portable.open(folder, read_digest_setting(config, "digest"))
        if inputs is None:
            raise ConfigError(
                f"release={folder}: no queries were given: give their file with inputs=FILE. Only "
                "run=FOLDER answers without one, for the rows that were kept out of training"
            )
        # Called only because it raises: the code that reads queries may be missing or not trusted.
        release.queries()
        return cls(folder, release, Path(str(inputs)), config.get("force") is True)

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Label the queries, write labels and report into the record, and print the claim.

        Returns:
            The object that --json prints.

        Raises:
            ConfigError: the queries look like another population's, and ``force`` is not set.
        """
        release = self.release
        record.environment(
            release=str(self.folder.resolve()), inputs=str(self.inputs), dataset=release.name
        )
        source = release.queries()
        queries = source.load_queries(self.inputs)
        record.environment(inputs_id=queries.id_column)
        answers = release.labels
        table = LabelTable.of(queries, release.classes, self.inputs)
        numbers = release.target.numeric
        if numbers is not None:
            answers = release.numbers
            names = public_names(queries.ids)
            table = NumberTable(names, (), number_of=None, target=numbers)
        for line in [*outside_lines(queries), *id_lines(queries), *table.record_id_warnings]:
            console.note(line)
        mismatches = queries.population_mismatches
        if mismatches and not self.force:
            problems = "; ".join(mismatches)
            raise ConfigError(f"{problems}. To answer these queries nevertheless, add force=true")
        with record.opened(table.file) as file:
            shown = table.write(file, map(answers, pieces(queries.features)))
        path = record.folder / table.file
        record.add_metrics(n_queries=len(queries), proved=1, simulated=0, **release.noise)
        words = [*release.words, sentences.RELEASED_EARLIER]
        about = f"queries of {self.inputs.name}"
        record.report(
            release_report(release.name, about, release.mechanism, words, f"`{table.file}`", record)
        )
        brief = [*(release.brief or release.words), sentences.RELEASED_EARLIER, sentences.IN_FULL]
        for line in [*brief, f"labels: {path}"]:
            console.say(line)
        quality = score_for_owner(
            self.folder, self.inputs, queries, source, release.target, answers
        )
        if quality is not None:
            console.say(quality.sentence)
        result = {"metrics": record.metrics, "claim": words[0], "words": words}
        owner_only = None if quality is None else quality.fields
        return {**result, "labels": str(path) if shown is None else shown, "owner_only": owner_only}
