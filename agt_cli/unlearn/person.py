"""The answers of a run without one person's records: people found by their ids, and compared."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agt.data.dataset import Dataset, DataSource
from agt.data.digests import fingerprint
from agt.data.embeddings import Embeddings
from agt.data.erasure import copy_groups
from agt.data.records import Records
from agt.data.table import Table
from agt.errors import CheckError, ConfigError
from agt.facts import Standing
from agt.unlearning.influence import AnsweredModel, Influence, Neighbour, Outcome
from agt_cli.process import current_team
from agt_cli.report.console import Console
from agt_cli.runs.erased import erased_predicate
from agt_cli.runs.prepare import RunWithoutRecords, config_with_constants, prepare
from agt_cli.runs.queries import OpenedRun, read_queries
from agt_cli.unlearn.methods import from_the_start


@dataclass(frozen=True)
class Person:
    """A person whose records are left out.

    Attributes:
        name: the id, as the data has it: of a unit where the data names units, else of a record.
        rows: the row numbers of the person's training records, ascending.
        tested: the number of the person's test records, which training did not use.
    """

    name: str
    rows: np.ndarray
    tested: int


@dataclass(frozen=True)
class PersonAnswers:
    """How a run's answers to its queries depend on one person's records.

    Attributes:
        person: whose records are left out.
        influence: the answers without them.
    """

    person: Person
    influence: Influence

    @property
    def counts(self) -> dict[str, int]:
        """How many answers are the same without the records ("same"), change ("changed"), or are
        not known to do either ("not_shown").
        """
        return {outcome.name.lower(): self.influence.count(outcome) for outcome in Outcome}


@dataclass(frozen=True)
class _RecordNames:
    """By which ids the data of a run names its records.

    Attributes:
        are_units: whether these are the ids of units, not of single records.
        train: [n] the id of each training record.
        test: [m] the id of each test record.
    """

    are_units: bool
    train: np.ndarray
    test: np.ndarray

    @classmethod
    def from_dataset(cls, dataset: Dataset) -> "_RecordNames":
        """Return the ids of units if the data names units; else those of records."""
        if dataset.train.units_named:
            return cls(True, dataset.train.units, dataset.test.units)
        return cls(False, dataset.train.ids, dataset.test.ids)


def find_people(names: Sequence[str | int], opened: OpenedRun) -> tuple[Person, ...]:
    """Find the records of people in the data of a run, each id once.

    Args:
        names: the ids, at least one; a whole number where the id was not given as text.
        opened: the run, with its training records.

    Raises:
        ConfigError: ids that no record has, which the message all names; a whole number that
            several ids could mean; or records that cannot be left out.
    """
    train = opened.dataset.train
    record_names = _RecordNames.from_dataset(opened.dataset)
    all_ids = {*record_names.train.tolist(), *record_names.test.tolist()}
    for name in names:
        if isinstance(name, int):
            _check_one_meaning(name, all_ids)
    people = []
    for name in dict.fromkeys(map(str, names)):
        rows = np.flatnonzero(record_names.train == name)
        people.append(Person(name, rows, int((record_names.test == name).sum())))
    _check_known(people, names, record_names.are_units)
    _check_removable(people, names, opened)
    if record_names.are_units:
        return tuple(people)
    copies = copy_groups(opened.trained.settings.source, train)
    return tuple(replace(person, rows=_last_copies(person.rows, copies)) for person in people)


def _check_known(people: Sequence[Person], names: Sequence[str | int], are_units: bool) -> None:
    """Raise ConfigError if some people have no records, neither for training nor for tests.

    Args:
        people: what was found of each.
        names: the ids, as they were given.
        are_units: whether ids are those of units, not of single records.
    """
    unknown = [person.name for person in people if not len(person.rows) and not person.tested]
    if unknown:
        unit_name = "person (dataset.unit)" if are_units else "record (dataset.id)"
        raise ConfigError(
            f"person={_as_typed(names)}: no {unit_name} of the run's data has the id "
            f"{', '.join(unknown)}: write ids as in the data"
        )


def _check_removable(
    people: Sequence[Person], names: Sequence[str | int], opened: OpenedRun
) -> None:
    """Raise ConfigError if records of some people cannot be left out.

    These are public records, and test records that the features were computed from.

    Args:
        people: what was found of each.
        names: the ids, as they were given.
        opened: the run, with its training records.
    """
    is_public = opened.dataset.train.public
    public = [person.name for person in people if is_public[person.rows].any()]
    if public:
        raise ConfigError(
            f"person={_as_typed(names)}: records of {', '.join(public)} are marked public "
            "(dataset.public), and public records are never removed: leave these ids out"
        )
    of_test = [person.name for person in people if person.tested]
    if of_test and opened.stored.problem.settings.certificate.features.public == "test":
        raise ConfigError(
            f"person={_as_typed(names)}: the features were also computed from test records "
            f"(certificate.features.public=test), among them those of {', '.join(of_test)}. agt "
            "cannot compute features without these records: leave these ids out of person=..."
        )


def _check_one_meaning(number: int, ids: Collection[str]) -> None:
    """Raise ConfigError if several ids are the same whole number, such as 7, +7 and 07.

    Settings are read as numbers, so which of them was typed is not known here.

    Args:
        number: the id as it was read.
        ids: all ids of the data.
    """
    alike = []
    for text in ids:
        try:
            is_alike = int(text) == number
        except ValueError:
            continue
        if is_alike and text != str(number):
            alike.append(text)
    if alike:
        raise ConfigError(
            f"person={number}: {', '.join(sorted(alike))} would be read as the same whole number: "
            f"quote the id, as in \"person='{number}'\""
        )


def _last_copies(rows: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Return rows that are equal to the given ones and the last of their kind in the data.

    Ids that are made from a record's content also count the equal records before it. So if one of
    several equal records is left out of the file, the id that disappears is that of the last one,
    whichever of them it was (agt/data/erasure.py).

    Args:
        rows: the numbers of the rows to leave out.
        copies: [n] a text for each row of the data, the same for equal rows.

    Returns:
        As many row numbers as were given, of equal content, in increasing order.
    """
    chosen = []
    for content in np.unique(copies[rows]):
        copy_count = int((copies[rows] == content).sum())
        chosen.extend(np.flatnonzero(copies == content)[-copy_count:].tolist())
    return np.array(sorted(chosen), dtype=np.int64)


def compare_people(
    names: Sequence[str | int], opened: OpenedRun, console: Console
) -> tuple[PersonAnswers, ...]:
    """Compare a run's answers to its queries with those without each person's records.

    Each person is left out alone, not together with the others.

    Args:
        names: the ids of the people.
        opened: the run, with its training records, and the queries.
        console: shows the progress.

    Raises:
        ConfigError: an id is unknown; several processes share the work; requests to erase are
            pending; or the training drew noise that training again does not draw.
        CheckError: training again with everybody's records gives other answers, or without a
            person's records there are other classes.
    """
    _check_comparable(names, opened)
    people = find_people(names, opened)
    settings = opened.trained.settings
    finished = opened.trained.finished
    stored = opened.stored.problem
    again = replace(from_the_start(finished, settings), choices=stored.settings.choices)
    problem = replace(stored, settings=again)
    answered = AnsweredModel(problem, opened.model, finished, opened.queries.features)
    rows_of_people = [person.rows for person in people]
    constants_are_public = _constants_are_public(opened.dataset, settings.source, rows_of_people)

    def make_neighbour(rows: np.ndarray) -> Neighbour:
        if not constants_are_public:
            return _read_without(rows, opened, answered, console)
        train = _train_without(rows, stored.dataset)
        without = replace(problem, dataset=replace(stored.dataset, train=train, plane=None))
        return Neighbour(without, opened.queries.features, same_features=True)

    with console.progress("answers without these people", "person") as report:
        influences = answered.influences(
            rows_of_people,
            make_neighbour,
            constants_are_public,
            lambda done, of: report(done, of, done, of),
        )
    return tuple(map(PersonAnswers, people, influences))


def _check_comparable(names: Sequence[str | int], opened: OpenedRun) -> None:
    """Raise ConfigError if answers of a run cannot be compared with those without some people.

    Args:
        names: the ids of the people, as they were given.
        opened: the run, with its training records.
    """
    settings = opened.trained.settings
    if current_team.get() is not None:
        raise ConfigError(
            f"person={_as_typed(names)}: this comparison cannot be divided among several "
            "processes: start the command without torchrun"
        )
    if opened.pending_erasures.units:
        raise ConfigError(
            f"person={_as_typed(names)}: erasure requests are pending in this run, so its model "
            "still depends on records that its data no longer contain. First carry the requests "
            f"out with agt unlearn run={opened.trained.finished.folder}"
        )
    if settings.noise is not None or settings.certificate.noise == "drawn":
        raise ConfigError(
            f"person={_as_typed(names)}: the training of this run drew noise, and training again "
            "draws other noise, so answers with and without a person cannot be compared: use a "
            "run that was trained without noise"
        )


def _constants_are_public(
    dataset: Dataset, source: DataSource, people: Sequence[np.ndarray]
) -> bool:
    """Return whether leaving people out changes no constant that reads other records.

    Args:
        dataset: the data.
        source: what reads it.
        people: an array for each person, with the row numbers of the person's training records.
    """
    # Constants that are declared public are settings of agt's own sources, which therefore read
    # none off the records, whoever is left out. A user's own source may read some nevertheless.
    if not dataset.preprocessing.held:
        return False
    reads_settings_alone = type(source) in (Table, Embeddings)
    if dataset.preprocessing.standing is not Standing.PROVED and not reads_settings_alone:
        return False
    labels = dataset.train.labels
    totals = np.bincount(labels, minlength=len(dataset.classes))
    for rows in people:
        removed = np.bincount(labels[rows], minlength=len(dataset.classes))
        if ((removed > 0) & (removed == totals)).any():  # the classes may be read off the labels
            return False
    return True


def _read_without(
    rows: np.ndarray, opened: OpenedRun, answered: AnsweredModel, console: Console
) -> Neighbour:
    """Read the data of a run without some records, with the constants of the others.

    Args:
        rows: the row numbers of the records.
        opened: the run, with its training records.
        answered: the model, with the settings to train it again.
        console: shows the progress of an encoder.
    """
    dataset = opened.dataset
    erased_before = erased_predicate(opened.trained.finished)
    removed = dataset.train.ids[rows]

    def is_erased(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
        marked: np.ndarray = erased_before(ids, units) | np.isin(ids, removed)
        return marked

    prepared = prepare(opened.trained.settings, console, is_erased)
    without = prepared.dataset
    if without.classes != dataset.classes:
        raise CheckError(
            "without the records of this person, the data have the classes "
            f"{', '.join(without.classes)} instead of {', '.join(dataset.classes)}, so answers "
            "cannot be compared: leave this person's id out"
        )
    problem = replace(answered.problem, dataset=without)
    queries = without.test
    if opened.trained.inputs is not None:
        source = config_with_constants(opened.trained.finished.config, prepared.loaded)
        run = RunWithoutRecords(problem, source, prepared.encoder)
        queries = read_queries(opened.trained.inputs, run)
    same_features = fingerprint(_train_without(rows, dataset)) == fingerprint(without.train)
    same_features = same_features and fingerprint(opened.queries) == fingerprint(queries)
    return Neighbour(problem, queries.features, same_features)


def _train_without(rows: np.ndarray, dataset: Dataset) -> Records:
    """Return the training records of a dataset without those in some rows."""
    remaining = np.ones(len(dataset.train), dtype=bool)
    remaining[rows] = False
    return dataset.train.take(remaining)


def _as_typed(names: Sequence[str | int]) -> str:
    """Return ids as a command line has them."""
    return str(names[0]) if len(names) == 1 else f"[{','.join(map(str, names))}]"
