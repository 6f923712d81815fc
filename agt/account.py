"""A privacy ledger for Python programs: a file with the budget of one population.

    ledger = agt.Ledger.create("loans.ledger", unit="one customer", eps=4, delta=1e-5)
    agt.PrivateClassifier(epsilon=1, declared=declared, ledger=ledger).fit(x, y, units=customers)
    print(ledger)                                  what is spent of it

The file is the one of ``agt ledger``. Each release opens, debits and closes it, so that copies,
pickles and parallel processes share one budget.

Formal guarantees
    What a release spends is on disk, in the ledger and in its head file (a copy of the newest
    entry's hash, kept elsewhere), before anything is drawn.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.dataset import Dataset
from agt.errors import ConfigError, Doubtful, PrivacySumWarning, naming_settings, warn_user
from agt.ledger.book import Population
from agt.ledger.descriptions import describe_budget, without_delta
from agt.ledger.ledger import Ledger as OpenLedger
from agt.ledger.ledger_list import check_same_ledger, put_on_list, similar_ledgers_warning
from agt.ledger.payer import MAX_RELEASES, LedgerPayer, NoPayer, Payer, ProtectedPeople
from agt.ledger.process import PROCESS, HashedPeople, PrivacyTotal, ProcessPayer
from agt.ledger.tables import AdmittedTable, sample_names
from agt.ledger.unit import Unit
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.budget import Allowance, eps_so_far
from agt.mechanisms.guarantees import Guarantee
from agt.messages import ArgumentNames
from agt.parameters import explaining_arguments, explaining_parameters
from agt.release_settings import LEAK_SHARE
from agt.settings import RelationConfig, RelationName, check_number
from agt.store.json_text import as_json

HEAD_VARIABLE = "AGT_LEDGER_HEAD"
"""An environment variable: the file or folder of every ledger's head file (a copy of its newest
hash); it takes precedence over the place that a ledger records."""

LEDGER_ARGUMENTS = ArgumentNames(
    {
        "total.": "{}",
        "agt ledger init": "agt.Ledger.create(...)",
        "agt ledger show": "agt.Ledger.open, which opens",
    }
)
"""What error messages call the arguments and functions of this interface."""


@dataclass(frozen=True)
class DataOwner:
    """The training data of a model, and the people it is about, as ledgers identify them.

    Attributes:
        data: the digest of the training data.
        unit: the column that names the unit (person) of each record, and how many records one unit
            may have.
        run: identifies the model: a hash of its settings and its data.
        relation: the name of the relation that says which datasets are neighbours.
        unit_names: [n] str, the unit of each record, by which other ledgers with the same people
            are found; empty: a model that was read back from a file.
        hashed: hashes of the same people, which only this process uses.
        earlier: digests of the data before records were erased from it.
        public: the records were declared public, so that releases need not be counted.
    """

    data: str
    unit: Unit
    run: str
    relation: str
    unit_names: np.ndarray = field(repr=False, compare=False)
    hashed: HashedPeople
    earlier: tuple[str, ...] = ()
    public: bool = False

    @classmethod
    def from_records(
        cls,
        dataset: Dataset,
        relation: RelationConfig,
        description: object,
        earlier: tuple[str, ...] = (),
        public: bool = False,
    ) -> "DataOwner":
        """Return the owner of training records that are in memory.

        Args:
            dataset: the data that a model is trained on.
            relation: the neighbour relation, with the largest number of records of one unit.
            description: all settings that a release depends on, as a JSON value.
            earlier: digests of the data before records were erased from it.
            public: the records were declared public.
        """
        train = dataset.train
        with dataset.digest_in_background():
            people = HashedPeople.from_records(train)
            digests = (dataset.digest, *earlier)
        content = as_json({"settings": description, "data": dataset.digest})
        return cls(
            data=dataset.digest,
            unit=Unit("units" if train.units_named else None, relation.unit_rows),
            run=f"python:{sha256(content).hexdigest()}",
            relation=relation.name,
            unit_names=train.units,
            hashed=people.with_digests(digests),
            earlier=earlier,
            public=public,
        )

    @classmethod
    def from_json(
        cls, node: Mapping[str, Any], dataset: Dataset, relation: RelationConfig
    ) -> "DataOwner":
        """Return the owner that a saved model stores, without the people's names.

        Args:
            node: the result of ``as_json``.
            dataset: the dataset of the saved model, which has no records.
            relation: the neighbour relation.

        Raises:
            ValueError, TypeError, KeyError: ``node`` does not have the form of ``as_json``.
        """
        earlier = tuple(node["earlier"])
        if not all(isinstance(text, str) for text in (node["run"], node["data"], *earlier)):
            raise ValueError(
                "owner: the entries 'run', 'data' and 'earlier' must be digests (text). Use the "
                "owner that agt returned, unchanged"
            )
        return cls(
            data=node["data"],
            unit=Unit(node["unit"]["column"], node["unit"]["rows"]),
            run=node["run"],
            relation=relation.name,
            unit_names=np.empty(0, dtype=str),
            hashed=HashedPeople.from_records(dataset.train).with_digests((node["data"], *earlier)),
            earlier=earlier,
            public=node.get("public") is True,
        )

    @property
    def as_json(self) -> dict[str, Any]:
        """The JSON value that a saved model stores: digests and numbers, but no hashes of names."""
        return {
            "data": self.data,
            "unit": asdict(self.unit),
            "run": self.run,
            "earlier": list(self.earlier),
            "public": self.public,
        }

    @cached_property
    def table(self) -> AdmittedTable:
        """The training data as a table that a ledger can admit, that is count releases about.

        All names are hashed here, because only ledgers need the sample of them.
        """
        return AdmittedTable(
            "arrays",
            self.data,
            unit=self.unit,
            before=self.earlier,
            people=sample_names(self.unit_names),
        )


@explaining_parameters
@dataclass(frozen=True)
class Ledger:
    """The privacy budget of one population, in a file.

    Attributes:
        path: the file. ``create`` and ``open`` make it absolute, so that a process may change its
            working directory.
        second_head: a file or folder for the head file (a copy of the newest entry's hash, which
            shows that the file was not replaced by an older copy); None: the place that the ledger
            records.
    """

    path: Path
    second_head: Path | None = None

    @classmethod
    @explaining_arguments("agt.Ledger.create")
    def create(
        cls,
        path: str | Path,
        *,
        unit: str,
        eps: float,
        delta: float = 0.0,
        relation: RelationName = "add_remove",
        leaks: float = LEAK_SHARE,
        second_head: str | Path | None = None,
    ) -> "Ledger":
        """Create a ledger file with a budget for all releases about some people.

        The budget cannot be raised later.

        Args:
            path: a new file, whose name ends in .ledger.
            unit: the unit of protection in a few words, such as "one customer": a neighbouring
                dataset lacks the data of one such unit.
            eps, delta: all releases together are (eps, delta)-differentially private.
            relation: the neighbour relation.
            leaks: the share of delta for releases that have a delta of their own; the rest is for
                Gaussian noise.
            second_head: a new file on another disk, or a folder for it. It holds a copy of the
                newest entry's hash, by which an older copy of the ledger is recognised.

        Raises:
            ConfigError: a ledger of this name exists or existed, or the budget or the unit is not
                valid.

        Warns:
            Doubtful: delta is 0, so no release with Gaussian noise can be paid for.
        """
        for name, value in {"eps": eps, "delta": delta, "leaks": leaks}.items():
            check_number(value, name)
        if not isinstance(unit, str):
            raise ConfigError(
                f"unit={unit!r} must be text: say in a few words whose data the guarantee "
                "protects, for example unit='one customer'"
            )
        ledger = cls(
            _absolute_path("path", path),
            None if second_head is None else _absolute_path("second_head", second_head),
        )
        with naming_settings(LEDGER_ARGUMENTS):
            population = Population(ledger.path.stem, unit, relation, Allowance(eps, delta, leaks))
            if not ledger.path.exists():
                check_same_ledger(ledger.path)  # raises if another ledger is listed at this path
            with OpenLedger.create(ledger.path, population, ledger._head) as opened:
                _put_on_ledger_list(opened)
        if not delta:
            warn_user(f"delta=0: {without_delta(ledger.path)}", Doubtful)
        return ledger

    @classmethod
    def open(cls, path: str | Path, second_head: str | Path | None = None) -> "Ledger":
        """Open a ledger file, after checking that it is complete and no older copy.

        Args:
            path: the file.
            second_head: a file or folder with the copy of the newest entry's hash; None: the place
                that the ledger records.

        Raises:
            ConfigError: there is no such ledger.
            CheckError: the ledger was edited, or is older than its head file.
        """
        ledger = cls(
            _absolute_path("path", path),
            None if second_head is None else _absolute_path("second_head", second_head),
        )
        with ledger._open_file(writing=False):
            return ledger

    @property
    def budget(self) -> Allowance:
        """The budget: the largest total privacy loss of all releases together."""
        with self._open_file(writing=False) as ledger:
            return ledger.population.allowance

    @property
    def spent(self) -> PrivacyTotal:
        """The part of the budget that is used so far, which is no privacy guarantee."""
        with self._open_file(writing=False) as ledger:
            allowance = ledger.population.allowance
            eps = eps_so_far(allowance, ledger.book.spent)
            releases = sum(debit.size for debit in ledger.history().values())
            return PrivacyTotal(eps, allowance.delta, releases)

    def words(self) -> list[str]:
        """Return sentences on what this ledger cannot detect, as its claims contain them.

        For example, that there is no second copy of its newest entry's hash. ``str(ledger)`` says
        the budget and what is spent.
        """
        with self._open_file(writing=False) as ledger:
            return ledger.claim_sentences()

    def __str__(self) -> str:
        """Return the population, its unit, the budget, and how much of eps is used so far."""
        with self._open_file(writing=False) as ledger:
            population = ledger.population
            allowance = population.allowance
            eps = eps_so_far(allowance, ledger.book.spent)
            return (
                f"the ledger of {population.name}, where a unit is {population.unit} "
                f"(relation={population.relation})\n  budget: {describe_budget(allowance)}; spent "
                f"so far: eps = {eps:.4g}"
            )

    def remaining(self, guarantee: Guarantee) -> int:
        """Return the number of further releases that the budget allows together, of one guarantee.

        Nothing is spent. For example, a new ledger of eps = 2 and delta = 0 has 20 remaining
        releases of ``agt.RandomizedResponse(eps=0.1).guarantee``.

        Args:
            guarantee: the guarantee of each release, such as ``mechanism.guarantee``.
        """
        with self._open_file(writing=False) as ledger:
            return ledger.population.allowance.max_lot_size(
                ledger.book.spent, guarantee, MAX_RELEASES
            )

    @property
    def _head(self) -> Path | None:
        """The path of the head file, which has a copy of the newest entry's hash.

        None: neither the argument nor the environment names it, so the ledger's own record does.
        """
        if self.second_head:
            return self.second_head
        path = os.environ.get(HEAD_VARIABLE)
        return Path(path) if path else None

    def _open_file(self, writing: bool = True) -> OpenLedger:
        """Open the ledger's file, with messages in the terms of this Python interface.

        Args:
            writing: False to read only, also where nothing can be written.
        """
        with naming_settings(LEDGER_ARGUMENTS):
            return OpenLedger.open(self.path, self._head, writing=writing)

    @contextmanager
    def payer(self, owner: DataOwner) -> Iterator[LedgerPayer]:
        """Admit a model's data, and open the ledger as the payer of the model's releases.

        Naming a ledger declares that the model's units are people of its population, so the model's
        data is admitted to the ledger if it was not before. A ``PrivacySumWarning`` then says if a
        ledger in another folder may count the same people, because two budgets add up.
        The ledger is closed after the context.

        Args:
            owner: the people whose data the model was trained on.

        Yields:
            The payer, which debits the ledger.

        Raises:
            ConfigError: the population has another relation or another unit, or another ledger of
                the same folder has these people.
            CheckError: the ledger was edited, or is an older copy.
        """
        table = owner.table
        with self._open_file() as ledger:
            _put_on_ledger_list(ledger)
            ledger.population.check_relation(owner.relation)
            admitted = {*ledger.book.tables}
            # Data from which records were erased is known by its digest before the erasure.
            if table.data not in admitted and admitted.isdisjoint(table.before):
                warning = similar_ledgers_warning(self.path, table)
                if warning:
                    warn_user(warning, PrivacySumWarning)
                ledger.admit(table, None if table.unit.column is None else ledger.population.unit)
            yield LedgerPayer.checked(ledger, ProtectedPeople(table, owner.relation), owner.run)


@contextmanager
def paying(ledger: "Ledger | str | Path | None", owner: DataOwner) -> Iterator[Payer]:
    """Open the payer of a release (a ledger, if one is given), and close it afterwards.

    Args:
        ledger: the ledger or its path; None: no file counts the release. This process counts it,
            and warns at the second release about the same people.
        owner: the people whose data the release is about.

    Yields:
        The payer: it reserves a budget for a release before anything is drawn.

    Raises:
        ConfigError, CheckError: the ledger cannot count releases about this data, or was edited or
            replaced (``Ledger.payer``).
    """
    if ledger is None:
        uncounted = Uncounted("call")
        if owner.public:
            yield NoPayer(uncounted)
        else:
            yield ProcessPayer(uncounted, people=owner.hashed)
        return
    with _as_ledger(ledger).payer(owner) as payer:
        yield payer


def total_so_far(ledger: "Ledger | str | Path | None", owner: DataOwner) -> PrivacyTotal | None:
    """Return the (eps, delta) of all releases so far, from a ledger or from this process's count.

    Args:
        ledger: the ledger or its path; None: what this process has released about some of the same
            people.
        owner: the people whose data the total is about; read only without a ledger.

    Returns:
        The total; None: this process has released nothing about these people.
    """
    if ledger is None:
        return PROCESS.total(owner.hashed)
    return _as_ledger(ledger).spent


def _as_ledger(ledger: "Ledger | str | Path") -> Ledger:
    """Return a ledger, which is opened if its path is given."""
    if isinstance(ledger, Ledger):
        return ledger
    return Ledger.open(_absolute_path("ledger", ledger))


def _absolute_path(name: str, path: object) -> Path:
    """Return the absolute path of a file.

    Args:
        name: the argument's name, for the message.
        path: the path that the user gave.

    Raises:
        ConfigError: it is no path.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(
            f"{name}={path!r}: this is not a ledger: give an agt.Ledger, or the path of a "
            "ledger's file"
        )
    return Path(os.path.abspath(path))


def _put_on_ledger_list(ledger: OpenLedger) -> None:
    """Put an open ledger on the user's list of ledgers, and warn if the list cannot be written.

    The list shows if another ledger later takes this one's place. Every ledger is listed after it
    is created and before it is debited: so the list never names a ledger that does not exist, and
    every ledger that has spent something is on it.

    Raises:
        CheckError: another ledger is listed at this path.
    """
    if note := put_on_list(ledger):
        warn_user(note, Doubtful)
