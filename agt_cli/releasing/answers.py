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
from agt_cli.command_settings.predict import check_portable_answers
from agt_cli.configuration import read_digest_setting
from agt_cli.releasing.answer_quality import score_for_owner
from agt_cli.releasing.label_table import LabelTable, NumberTable, public_names
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import outside_lines, release_report


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
        check_portable_answers(config)
        folder = Path(str(config["release"]))
        release = Portable.open(folder, read_digest_setting(config, "digest"))
        # Called only because it raises: the code that reads queries may be missing or not trusted.
        release.queries()
        return cls(folder, release, Path(str(config["inputs"])), config.get("force") is True)

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
        for line in [*outside_lines(queries), *table.describe_record_id(queries.id_column)]:
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
        brief = [*(release.brief or release.words), sentences.RELEASED_EARLIER]
        console.items(sentences.IN_BRIEF, brief)
        console.say(f"labels: {path}")
        quality = score_for_owner(
            self.folder, self.inputs, queries, source, release.target, answers
        )
        if quality is not None:
            console.say(quality.sentence)
        result = {"metrics": record.metrics, "claim": words[0], "words": words}
        owner_only = None if quality is None else quality.fields
        return {**result, "labels": str(path) if shown is None else shown, "owner_only": owner_only}
