"""agt measure: estimate ranges, lists of values, classes and the size of a table from its records,
with noise, where no public values are known.

The estimates are written to a dataset configuration, together with the privacy budget that they
cost.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from agt import sentences
from agt.certificates.conditions import CONDITION_NAMES, Condition, conditions_from, symmetric_fact
from agt.data.dataset import Dataset
from agt.data.file_settings import MeasurementNote
from agt.data.labels import class_names
from agt.data.settings import CLASSES, SIZE
from agt.data.table import Table
from agt.errors import AgtError, ConfigError
from agt.facts import declared, evidence, proved
from agt.mechanisms.claims import Claim, describe_neighbours
from agt.mechanisms.measurement import Measurement, TableConstants, TableValues
from agt.models.portable import CLAIM
from agt.release import ConstantsRelease, ReleaseTerms
from agt.settings import TotalConfig, build, plain_of, validate
from agt.store.atomic import write_atomic
from agt.training.batches import check_unit_rows
from agt_cli.command_settings.measure import no_budget, no_table
from agt_cli.configuration import chosen_options
from agt_cli.releasing.payer import payer_of, people_of
from agt_cli.releasing.spent import Spending, interrupted_releases, spending
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord, to_yaml
from agt_cli.report.release_md import PUBLISHED_FILES, release_report
from agt_cli.runs.column import UNWRITABLE_WORD
from agt_cli.runs.prepare import RunSettings, data_files, read_settings


@dataclass(frozen=True)
class MeasureSettings:
    """The table to measure, the mechanism and the file to write.

    Attributes:
        config: a training configuration with this table, resolved, as plain containers.
        settings: the validated configuration.
        table: reads the table.
        mechanism: adds the noise, within its budget.
        target: the dataset file that is written.
    """

    config: Mapping[str, Any]
    settings: RunSettings
    table: Table
    mechanism: Measurement
    target: Path

    def check_classes(self, values: TableValues) -> None:
        """Check, before budget is spent, that at least two classes will probably be found.

        Only the owner may read this, because it depends on the records.

        Args:
            values: the values that are to be measured.

        Raises:
            ConfigError: fewer than two classes have enough rows.
        """
        threshold = self.mechanism.threshold(len(values.numbers), len(values.texts))
        sure_rows = threshold + 2 * self.mechanism.sigma(len(values.numbers), len(values.texts))
        if CLASSES not in self.unknown_values:
            return
        counts = Counter(values.texts[self.table.label].tolist())
        large_classes = [name for name, count in counts.items() if not count < sure_rows]
        if counts and len(large_classes) < 2:
            raise ConfigError(
                "total.eps is too small, so nothing was spent: only classes with about "
                f"{sure_rows:,.0f} rows or more would be found in spite of the noise, and probably "
                "fewer than two classes are that large. List the classes in dataset.classes if "
                "their names are public (they usually are), or raise total.eps"
            )

    @property
    def unknown_values(self) -> tuple[str, ...]:
        """The values that are not declared public: columns' names, ``CLASSES`` and ``SIZE``."""
        table = self.table
        not_public = {*table.from_data}
        not_public |= {name for name, limits in table.numeric.items() if limits is None}
        unknown = [name for name in (*table.numeric, *table.categorical) if name in not_public]
        if table.target == "classes" and (table.classes is None or CLASSES in table.from_data):
            unknown.append(CLASSES)
        if table.declared_size is None:
            unknown.append(SIZE)
        return tuple(unknown)

    def training_values(self) -> TableValues:
        """Return the training records' values from which constants are to be measured.

        Raises:
            ConfigError: a unit has too many rows.
        """
        content = self.table.training_content()
        check_unit_rows(content.units, self.settings.relation.unit_rows)
        unknown = self.unknown_values
        numeric = {
            name: column
            for name, column in zip(self.table.numeric, content.numbers.T, strict=True)
            if name in unknown
        }
        texts = {
            name: column
            for name, column in zip(self.table.categorical, content.words.T, strict=True)
            if name in unknown
        }
        if CLASSES in unknown:
            texts[self.table.label] = content.labels
        return TableValues(numeric, texts, len(content.labels))

    def dataset_file_content(self, measured: TableConstants) -> dict[str, Any]:
        """Return the content of the dataset file.

        Args:
            measured: the noisy estimates.

        Raises:
            ConfigError: no column, or fewer than two classes were found.
        """
        table = self.table
        lists = {
            name: [word for word in words if word != UNWRITABLE_WORD]
            for name, words in measured.lists.items()
        }
        found_classes = lists.pop(table.label, None)
        classes = table.classes
        if found_classes is not None:
            classes = class_names(np.array(found_classes), self.target)
        if table.target == "classes" and len(classes or ()) < 2:
            count = len(classes or ())
            raise ConfigError(
                f"a data set needs at least 2 classes, but agt measure found {count} in spite "
                "of the noise. Declare the classes in dataset.classes, or raise total.eps"
            )
        ranges = {
            name: list(measured.ranges.get(name, limits or ()))
            for name, limits in table.numeric.items()
        }
        categories = {
            name: list(words) for name, words in {**table.categorical, **lists}.items() if words
        }
        given = {
            **self.config["dataset"],
            "numeric": ranges,
            "categorical": categories,
            "classes": None if classes is None else list(classes),
            "declared_size": table.declared_size or measured.size,
            "unit_rows": self.settings.relation.unit_rows,
            "missing": "indicator",
            "from_data": [],
            "proposed_from_rows": [
                name for name in table.proposed_from_rows if name not in self.unknown_values
            ],
            "measurement": plain_of(MeasurementNote(self.unknown_values, self.price_sentence)),
        }
        try:
            build(given, "dataset")  # called because it raises if something is still missing
        except AgtError as error:
            raise ConfigError(
                "the values that were found in spite of the noise are not enough to describe "
                f"a data set ({error}). Declare more values public in the dataset "
                "configuration, or raise total.eps"
            ) from None
        return {key: value for key, value in given.items() if key not in ("_target_", "data_dir")}

    @property
    def price_sentence(self) -> str:
        """A sentence on the guarantee of the measurement, and for which neighbouring datasets it
        holds.
        """
        return sentences.price(
            str(self.mechanism.guarantee), describe_neighbours(self.settings.relation)
        )


def configure(config: Mapping[str, Any]) -> MeasureSettings:
    """Validate the settings, before any data is read.

    Raises:
        ConfigError: a setting is missing, unknown or invalid; the message names its key.
    """
    total = validate(TotalConfig, config.get("total"), "total")
    default_name = f"{chosen_options().get('dataset', 'table')}_measured"
    name = str(config.get("name") or default_name)
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(
            f"name={name}: give a name of letters, digits, '-' and '_' only, because agt "
            "measure writes the file conf/dataset/NAME.yaml"
        )
    training = {key: value for key, value in config.items() if key not in ("name", "total")}
    settings = read_settings(training)
    if not isinstance(settings.source, Table):
        raise no_table()
    if total.eps is None:
        raise no_budget()
    target = Path("conf", "dataset", f"{name}.yaml")
    if target.exists():
        raise ConfigError(
            f"{target} already exists: give another name with name=NAME, or move the file away"
        )
    if settings.source.measurement is not None:
        raise ConfigError(
            "dataset: this dataset configuration is itself a result of agt measure (it has "
            "dataset.measurement). Measuring it again would lose the record of the budget that "
            "was spent: give the dataset configuration that agt measure was first given"
        )
    mechanism = Measurement(total.eps, total.delta, settings.relation)
    mechanism.check()
    measure = MeasureSettings(training, settings, settings.source, mechanism, target)
    if not measure.unknown_values:
        raise ConfigError(
            "dataset.from_data is empty, so everything about this table is declared public "
            "and nothing needs to be measured: train with this dataset configuration as it is"
        )
    return measure


def conditions(loaded: Dataset, settings: RunSettings) -> tuple[Condition, ...]:
    """Return the conditions of counts with noise; nothing is trained or certified."""
    known = dict.fromkeys("abcdefg", evidence(proved("nothing_trained")))
    known["b"] = loaded.selection
    known["e"] = evidence(declared("kinds_of_columns_public"))
    known["g"] = evidence(symmetric_fact(settings.relation))
    return conditions_from(known, CONDITION_NAMES["d"][0])


def run(measure: MeasureSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Pay for the measurement, measure, write the dataset file and the record, and print the
    result.

    Returns:
        What --json prints.


    Raises:
        ConfigError: the result would hardly describe a data set.
    """
    values = measure.training_values()
    loaded = measure.table.load()
    mechanism = measure.mechanism
    assessed = conditions(loaded, measure.settings)
    subject = {"data_digest": loaded.digest}
    threshold = mechanism.threshold(len(values.numbers), len(values.texts))
    console.note(
        f"values and classes with fewer than about {threshold:,.0f} rows are probably not found, "
        "because the noise hides them. Remove the rows of classes that were not found, because "
        "training refuses these rows"
    )
    people = people_of(loaded, measure.settings, measure.config)
    earlier_releases = interrupted_releases(record, subject)
    record.environment(**subject, dataset=loaded.name, data_files=data_files(measure.table))
    record.conditions(assessed)
    record.add_metrics(simulated=0, **mechanism.guarantee.parameters)
    with payer_of(record.config.get("ledger"), people, record) as payer:
        release = ConstantsRelease.judged(values, mechanism, assessed, ReleaseTerms(payer=payer))
        # a ledger is debited before anything private is computed, and by whoever asks
        if not payer.name:
            measure.check_classes(values)
        reservation = release.reserve()
        claimed = release.reserved_claim
    spent = Spending.of_claim(claimed, queries=0, dataset=loaded.name, ledger=reservation.entry)
    with spending(record, subject, spent):
        measured = measure.dataset_file_content(release.draw())
        _write_record(measure, record, loaded.name, claimed, measured, earlier_releases)
    dropped = [name for name in measure.table.categorical if name not in measured["categorical"]]
    console.say(f"written: {measure.target}")
    for name in dropped:
        console.say(f"the column '{name}' is left out, because the noise hid all of its values")
    console.items(sentences.IN_BRIEF, [*claimed.lines(brief=True), *earlier_releases])
    certificate = "" if measure.table.target == "classes" else " certificate=votes"
    console.say(f"next: agt train dataset={measure.target.stem}{certificate}")
    words = claimed.lines()
    return {
        "dataset": str(measure.target),
        "measured": measured,
        "claim": words[0],
        "words": words,
    }


def _write_record(
    measure: MeasureSettings,
    record: RunRecord,
    dataset: str,
    claimed: Claim,
    measured: Mapping[str, Any],
    earlier_releases: Sequence[str],
) -> None:
    """Write the record and the dataset file.

    Args:
        measure: the settings.
        record: the command's record.
        dataset: name of the table.
        claimed: the claim about the measurement.
        measured: the content of the dataset file.
        earlier_releases: lines about earlier releases that did not finish.
    """
    content = to_yaml({"defaults": ["table", "_self_"], **measured})
    text = f"# written by agt measure: {measure.price_sentence}\n{content}"
    record.write("dataset.yaml", text.encode())
    record.write(CLAIM, claimed.for_file(datetime.now(UTC).date()).content)
    measure.target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(measure.target, text.encode())
    title = (
        "Ranges, lists and sizes of the table that were measured with noise (written to "
        f"{measure.target})"
    )
    lines = [*claimed.lines(), *earlier_releases]
    page = (title, measure.mechanism.name, lines, PUBLISHED_FILES["measure"])
    record.report(release_report(dataset, *page, record, "Ranges, lists and sizes"))
    record.finish()
