"""agt measure: ranges, lists, classes and a size that nobody knows in public, from the records
with noise, once.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from agt import sentences
from agt.certificates.conditions import CONDITION_NAMES, Condition, conditions_from, symmetric_fact
from agt.data.dataset import Dataset
from agt.data.file_settings import MeasurementNote
from agt.data.labelled import class_names
from agt.data.settings import CLASSES, SIZE
from agt.data.table import Table
from agt.errors import AgtError, ConfigError
from agt.facts import declared, evidence, proved
from agt.mechanisms.claims import describe_neighbours
from agt.mechanisms.measurement import Measurement, TableConstants, TableValues
from agt.models.portable import CLAIM
from agt.release import ConstantsRelease, ReleaseTerms
from agt.settings import TotalConfig, build, plain_of, validate
from agt.store import write_atomic
from agt.training.batches import check_unit_rows
from agt_cli.command_settings.measure import no_budget, no_table
from agt_cli.configuration import chosen_options
from agt_cli.releasing.payer import payer_of, people_of
from agt_cli.releasing.spent import Spending, spending, unfinished
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord, to_yaml
from agt_cli.report.release_md import PUBLISHED, predict_report
from agt_cli.runs.inspect import UNWRITABLE
from agt_cli.runs.prepare import RunSettings, data_files, settings_of


@dataclass(frozen=True)
class MeasureSettings:
    """A table, and what measuring it may spend.

    Attributes:
        config: of a training on it; resolved, as plain containers.
        settings: the same, validated.
        table: its source.
        mechanism: how it is measured.
        target: the dataset file that is written.
    """

    config: Mapping[str, Any]
    settings: RunSettings
    table: Table
    mechanism: Measurement
    target: Path

    def check_classes(self, wanted: TableValues) -> None:
        """Tell the owner alone, before anything is spent, that two classes would hardly stand
        out (ConfigError).
        """
        enough = self.mechanism.threshold(len(wanted.numbers), len(wanted.texts))
        sure = enough + 2 * self.mechanism.sigma(len(wanted.numbers), len(wanted.texts))
        counts = (
            Counter(wanted.texts[self.table.label].tolist())
            if CLASSES in self.unknown
            else Counter[str]()
        )
        few_rows = [name for name, count in counts.items() if count < sure]
        if len(counts) - len(few_rows) < 2 and counts:
            raise ConfigError(
                "total.eps is too small, so nothing was spent: only classes with about "
                f"{sure:,.0f} rows or more would be found in spite of the noise, and probably "
                "fewer than two classes are that large. List the classes in dataset.classes if "
                "their names are public (they usually are), or raise total.eps"
            )

    @property
    def unknown(self) -> tuple[str, ...]:
        """What nobody declared public: columns, and the words classes and size."""
        table = self.table
        open_ended = [name for name, limits in table.numeric.items() if limits is None]
        listed = [
            name
            for name in (*table.numeric, *table.categorical)
            if name in {*table.from_data, *open_ended}
        ]
        classes = table.target == "classes" and (
            table.classes is None or CLASSES in table.from_data
        )
        return (*listed, *[CLASSES] * classes, *[SIZE] * (table.declared_size is None))

    def content(self) -> TableValues:
        """The training records' part of it. Raises ConfigError: a unit has too many rows."""
        (numbers, words), labels, units = self.table.training_content()
        check_unit_rows(units, self.settings.relation.unit_rows)
        parts = (
            zip(self.table.numeric, numbers.T, strict=True),
            zip(self.table.categorical, words.T, strict=True),
        )
        asked = [{name: values for name, values in part if name in self.unknown} for part in parts]
        return TableValues(
            asked[0],
            asked[1] | ({self.table.label: labels} if CLASSES in self.unknown else {}),
            len(labels),
        )

    def dataset(self, measured: TableConstants) -> dict[str, Any]:
        """The dataset file's content.

        Raises ConfigError: no column, or fewer than two classes stand out of the noise.
        """
        table, told = self.table, measured.lists.items()
        lists = {name: [word for word in words if word != UNWRITABLE] for name, words in told}
        found = lists.pop(table.label, None)
        classes = table.classes if found is None else class_names(np.array(found), self.target)
        if table.target == "classes" and len(classes or ()) < 2:
            count = len(classes or ())
            raise ConfigError(
                f"a data set needs at least 2 classes, but agt measure found {count} in spite "
                "of the noise. Declare the classes in dataset.classes, or raise total.eps"
            )
        changed = {
            "numeric": {
                name: list(measured.ranges.get(name, limits or ()))
                for name, limits in table.numeric.items()
            },
            "categorical": {
                name: list(words) for name, words in {**table.categorical, **lists}.items() if words
            },
            "classes": None if classes is None else list(classes),
            "declared_size": table.declared_size or measured.size,
            "unit_rows": self.settings.relation.unit_rows,
            "missing": "indicator",
            "from_data": [],
            "measurement": plain_of(MeasurementNote(self.unknown, self.claimed)),
        }
        given = {**self.config["dataset"], **changed}
        try:
            build(given, "dataset")
        except AgtError as error:
            raise ConfigError(
                "the values that were found in spite of the noise are not enough to describe "
                f"a data set ({error}). Declare more values public in the dataset "
                "configuration, or raise total.eps"
            ) from None
        return {key: value for key, value in given.items() if key not in ("_target_", "data_dir")}

    @property
    def claimed(self) -> str:
        """The price, in words."""
        return sentences.price(
            str(self.mechanism.guarantee), describe_neighbours(self.settings.relation)
        )


def configure(config: Mapping[str, Any]) -> MeasureSettings:
    """Validate the settings, before any data is read (ConfigError)."""
    total, given = validate(TotalConfig, config.get("total"), "total"), dict(config)
    name = str(given.pop("name", None) or f"{chosen_options().get('dataset', 'table')}_measured")
    del given["total"]
    if not re.fullmatch(r"[\w-]+", name):
        raise ConfigError(
            f"name={name}: give a name of letters, digits, '-' and '_' only, because agt "
            "measure writes the file conf/dataset/NAME.yaml"
        )
    settings, target = settings_of(given), Path("conf", "dataset", f"{name}.yaml")
    if not isinstance(settings.source, Table):
        raise no_table()
    if total.eps is None:
        raise no_budget()
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
    measure = MeasureSettings(given, settings, settings.source, mechanism, target)
    if not measure.unknown:
        raise ConfigError(
            "dataset.from_data is empty, so everything about this table is declared public "
            "and nothing needs to be measured: train with this dataset configuration as it is"
        )
    return measure


def conditions(loaded: Dataset, settings: RunSettings) -> tuple[Condition, ...]:
    """What counts with noise rest on; nothing is trained, and no certificate takes part."""
    untouched = dict.fromkeys("abcdefg", evidence(proved("nothing_trained")))
    kinds = evidence(declared("kinds_of_columns_public"))
    found = {"b": loaded.selection, "e": kinds, "g": evidence(symmetric_fact(settings.relation))}
    return conditions_from(untouched | found, CONDITION_NAMES["d"][0])


def run(measure: MeasureSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Say on disk what is spent, measure, and write the dataset file."""
    wanted, loaded, mechanism = measure.content(), measure.table.load(), measure.mechanism
    rests_on, subject = conditions(loaded, measure.settings), {"data_digest": loaded.digest}
    enough = mechanism.threshold(len(wanted.numbers), len(wanted.texts))
    console.note(
        f"values and classes with fewer than about {enough:,.0f} rows are probably not found, "
        "because the noise hides them. Remove the rows of classes that were not found, because "
        "training refuses these rows"
    )
    people, earlier = (
        people_of(loaded, measure.settings, measure.config),
        unfinished(record, subject),
    )
    record.environment(**subject, dataset=loaded.name, data_files=data_files(measure.table))
    record.conditions(rests_on)
    record.add_metrics(simulated=0, **mechanism.guarantee.parameters)
    with payer_of(record.config.get("ledger"), people, record) as payer:
        release = ConstantsRelease.judged(wanted, mechanism, rests_on, ReleaseTerms(payer=payer))
        # a ledger is debited before anything private is computed, and by whoever asks
        if not payer.name:
            measure.check_classes(wanted)
        reservation = release.reserve()
        claimed = release.reserved_claim
    said = claimed.lines()
    about = Spending.of_claim(claimed, queries=0, dataset=loaded.name, ledger=reservation.entry)
    with spending(record, subject, about):
        made = measure.dataset(release.draw())
        content = to_yaml({"defaults": ["table", "_self_"], **made})
        text = f"# written by agt measure: {measure.claimed}\n{content}"
        record.write("dataset.yaml", text.encode())
        record.write(CLAIM, claimed.for_file(datetime.now(UTC).date()).content)
        measure.target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(measure.target, text.encode())
        page = (
            "Ranges, lists and sizes of the table that were measured with noise (written to "
            f"{measure.target})",
            mechanism.name,
            [*said, *earlier],
            PUBLISHED["measure"],
        )
        record.report(predict_report(loaded.name, *page, record, "Ranges, lists and sizes"))
        record.finish()
    dropped = [name for name in measure.table.categorical if name not in made["categorical"]]
    lines = [
        (f"the column '{name}' is left out, because the noise hid all of its values")
        for name in dropped
    ]
    lines += [*claimed.lines(brief=True), sentences.IN_FULL, *earlier]
    certificate = "" if measure.table.target == "classes" else " certificate=votes"
    for line in (
        f"written: {measure.target}",
        *lines,
        f"next: agt train dataset={measure.target.stem}{certificate}",
    ):
        console.say(line)
    return {"dataset": str(measure.target), "measured": made, "claim": said[0], "words": said}
