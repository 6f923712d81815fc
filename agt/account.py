"""A ledger for programs: the file that counts what is released about one population, and the budget
that it keeps to.

    ledger = agt.Ledger.create("loans.ledger", unit="one customer", eps=4, delta=1e-5)
    agt.PrivateClassifier(epsilon=1, declared=declared, ledger=ledger).fit(x, y, units=customers)
    print(ledger)                                  what is spent of it

The file is the one of ``agt ledger``, and each release opens it, debits it, and gives it back. So
copies, pickles and the workers of joblib share one budget, and several processes wait for each
other.

Formal guarantees
    What a release spends is on the disk, in the ledger and in its second head, before anything is
    drawn (agt/ledger).
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import Any

from agt.data.dataset import Dataset
from agt.errors import ConfigError, Doubtful, PrivacySumWarning, naming_settings, warn_user
from agt.ledger.book import AdmittedTable, Population, budget, eps_so_far, sample_of
from agt.ledger.chain import Unit
from agt.ledger.known import check_same_ledger, recognise, similar_elsewhere
from agt.ledger.ledger import Ledger as OpenLedger
from agt.ledger.payer import MAX_RELEASES, LedgerPayer, NoPayer, Payer, ProtectedPeople
from agt.ledger.process import PROCESS, HashedPeople, PrivacyTotal, ProcessPayer
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.budget import LEAK_SHARE, Allowance
from agt.mechanisms.guarantees import Guarantee
from agt.messages import ArgumentNames
from agt.settings import RelationConfig, RelationName
from agt.store import as_json

HEAD_VARIABLE = "AGT_LEDGER_HEAD"
"""The environment's: where every second head lies, a file or a folder, whatever a ledger says."""

LEDGER_ARGUMENTS = ArgumentNames(
    {
        "total.": "{}",
        "agt ledger init": "agt.Ledger.create(...)",
        "agt ledger show": "agt.Ledger.open, which opens",
    }
)
"""How errors call what ledgers take, and what makes and shows one."""


@dataclass(frozen=True)
class DataOwner:
    """Whose data a model was trained on, as accounts know it.

    Attributes:
        data: the digest of the training data; empty: a model that an earlier version saved.
        unit: how it counts people.
        run: names the model: its settings and its data.
        relation: which datasets are neighbours.
        people: ``sample_of`` the names of its units; none: a model that was read back.
        hashed: of the same people.
        earlier: digests of the data before records were erased from it.
        public: its records were declared public, so that nothing has to be counted.
    """

    data: str
    unit: Unit
    run: str
    relation: str
    people: tuple[str, ...]
    hashed: HashedPeople
    earlier: tuple[str, ...] = ()
    public: bool = False

    @classmethod
    def of_records(
        cls,
        dataset: Dataset,
        relation: RelationConfig,
        description: object,
        earlier: tuple[str, ...] = (),
        public: bool = False,
    ) -> "DataOwner":
        """Return the owner of records that are there.

        Args:
            dataset: that is trained on.
            relation: which datasets are neighbours.
            description: of everything that decides what a release is drawn from; JSON.
            earlier: digests of the data before records were erased.
            public: its records were declared public.
        """
        train = dataset.train
        content = as_json({"settings": description, "data": dataset.digest})
        return cls(
            data=dataset.digest,
            unit=Unit("units" if train.units_named else None, relation.unit_rows),
            run=f"python:{sha256(content).hexdigest()}",
            relation=relation.name,
            people=sample_of(train.units),
            hashed=HashedPeople.of(dataset, (dataset.digest, *earlier)),
            earlier=earlier,
            public=public,
        )

    @classmethod
    def read(
        cls, node: Mapping[str, Any], dataset: Dataset, relation: RelationConfig, model: str
    ) -> "DataOwner":
        """Return what ``as_json`` gave, of a model that was read back.

        Args:
            node: it.
            dataset: without records.
            relation: which datasets are neighbours.
            model: its digest, which stands for people of whom nothing is known.

        Raises:
            ValueError, TypeError, KeyError: it gave no such thing.
        """
        earlier = tuple(node["earlier"])
        if not all(isinstance(text, str) for text in (node["run"], node["data"], *earlier)):
            raise ValueError("owner: a digest is no text")
        return cls(
            data=node["data"],
            unit=Unit(node["unit"]["column"], node["unit"]["rows"]),
            run=node["run"],
            relation=relation.name,
            people=(),
            hashed=HashedPeople.of(dataset, (node["data"] or model, *earlier)),
            earlier=earlier,
            public=node.get("public") is True,
        )

    @property
    def as_json(self) -> dict[str, Any]:
        """What a saved model keeps of it: no name and no hash of one."""
        return {
            "data": self.data,
            "unit": asdict(self.unit),
            "run": self.run,
            "earlier": list(self.earlier),
            "public": self.public,
        }

    @property
    def table(self) -> AdmittedTable:
        """What a ledger admits."""
        return AdmittedTable(
            "arrays", self.data, unit=self.unit, before=self.earlier, people=self.people
        )


UNKNOWN_OWNER = {
    "data": "",
    "run": "",
    "unit": {"column": None, "rows": 1},
    "earlier": [],
    "public": False,
}
"""Of a model that an earlier version saved."""


@dataclass(frozen=True)
class Ledger:
    """One population's budget, in a file.

    Attributes:
        path: of the file; absolute, as ``create`` and ``open`` make it, so that a process may
            change its folder.
        second_head: where the second head must lie, a file or a folder; None: where the ledger
            says, if it has one.
    """

    path: Path
    second_head: Path | None = None

    @classmethod
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
        """Create a ledger file with a budget for all that is ever released about some people.

        The budget cannot be raised later.

        Args:
            path: of a new file, whose name ends in .ledger.
            unit: whose data one step of privacy is, such as "one customer".
            eps, delta: all of it is (eps, delta)-differentially private.
            relation: which datasets are neighbours.
            leaks: the share of delta for releases that have a delta of their own; the rest is for
                Gaussian ones.
            second_head: a new file on another disk, or the folder for it, by which an older copy is
                told from the ledger.

        Raises:
            ConfigError: there is a ledger already, or was one of this name; or the budget or the
                unit cannot be used.
        """
        for name, value in {"eps": eps, "delta": delta, "leaks": leaks}.items():
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ConfigError(f"{name}={value!r}: give a number")
        if not isinstance(unit, str):
            raise ConfigError(f"unit={unit!r}: give it in a few words, unit='one customer' say")
        ledger = cls(
            _absolute("path", path),
            None if second_head is None else _absolute("second_head", second_head),
        )
        with naming_settings(LEDGER_ARGUMENTS):
            population = Population(ledger.path.stem, unit, relation, Allowance(eps, delta, leaks))
            if not ledger.path.exists():
                check_same_ledger(ledger.path)
            with OpenLedger.create(ledger.path, population, ledger._head) as opened:
                _list(opened)
        return ledger

    @classmethod
    def open(cls, path: str | Path, second_head: str | Path | None = None) -> "Ledger":
        """Open a ledger file, and check that it is complete and was not replaced by an older copy.

        Raises:
            ConfigError: there is none.
            CheckError: it was edited, or is older than its second head.
        """
        ledger = cls(
            _absolute("path", path),
            None if second_head is None else _absolute("second_head", second_head),
        )
        with ledger._opened(writing=False):
            return ledger

    @property
    def budget(self) -> Allowance:
        """What everything together may cost."""
        with self._opened(writing=False) as ledger:
            return ledger.population.allowance

    @property
    def spent(self) -> PrivacyTotal:
        """Where the counter stands: the position of a counter, and no guarantee of its own."""
        with self._opened(writing=False) as ledger:
            allowance, book = ledger.population.allowance, ledger.book
            releases = sum(debit.size for debit in ledger.history().values())
            return PrivacyTotal(eps_so_far(allowance, book.spent), allowance.delta, releases)

    def words(self) -> list[str]:
        """Return what claims on this ledger say of it, a line each."""
        with self._opened(writing=False) as ledger:
            return ledger.words()

    def __str__(self) -> str:
        with self._opened(writing=False) as ledger:
            allowance, population = ledger.population.allowance, ledger.population
            eps = eps_so_far(allowance, ledger.book.spent)
            return (
                f"{population.name}: each {population.unit}, {population.relation}\n"
                f"  budget {budget(allowance)}; counter at eps = {eps:.4g}"
            )

    def remaining(self, guarantee: Guarantee) -> int:
        """Return how many more releases of one guarantee the budget allows, if made together.

        Nothing is spent.

        Args:
            guarantee: of each release, such as ``mechanism.guarantee``.
        """
        with self._opened(writing=False) as ledger:
            return ledger.population.allowance.fitting(ledger.book.spent, guarantee, MAX_RELEASES)

    @property
    def _head(self) -> Path | None:
        place = os.environ.get(HEAD_VARIABLE)
        return self.second_head or (Path(place) if place else None)

    def _opened(self, writing: bool = True) -> OpenLedger:
        with naming_settings(LEDGER_ARGUMENTS):
            return OpenLedger.open(self.path, self._head, writing=writing)

    @contextmanager
    def payer(self, owner: DataOwner) -> Iterator[LedgerPayer]:
        """Open what a model's releases are paid from.

        To name a ledger is to declare that the model's units are people of its population, so its
        data is admitted if it was not before. Where a ledger in another folder may count the same
        people, that is said then (``PrivacySumWarning``), because two budgets add up.

        Raises:
            ConfigError: the population has another relation or another unit, or another ledger of
                the same folder has these people; or the model does not know whose data it is from.
            CheckError: the ledger is not what was written.
        """
        if not owner.data:
            raise ConfigError(
                f"ledger={self.path}: the model was saved by an earlier version, without its "
                "data's digest"
            )
        table = owner.table
        with self._opened() as ledger:
            _list(ledger)
            ledger.population.check_relation(owner.relation)
            admitted = {*ledger.book.tables}
            if table.data not in admitted and admitted.isdisjoint(table.before):
                for line in dict.fromkeys(similar_elsewhere(self.path, table)):
                    warn_user(line, PrivacySumWarning)
                ledger.admit(table, None if table.unit.column is None else ledger.population.unit)
            yield LedgerPayer.checked(ledger, ProtectedPeople(table, owner.relation), owner.run)


@contextmanager
def paying(ledger: "Ledger | str | Path | None", owner: DataOwner) -> Iterator[Payer]:
    """Open what a release from Python is paid from.

    Args:
        ledger: or its path; None: this process counts, and warns at the second release about the
            same people.
        owner: whose data it is about.

    Raises:
        ConfigError, CheckError: as ``Ledger.payer``.
    """
    if ledger is None:
        yield NoPayer(Uncounted("call")) if owner.public else ProcessPayer(owner.hashed)
        return
    with _opened_account(ledger).payer(owner) as payer:
        yield payer


def total_so_far(ledger: "Ledger | str | Path | None", owner: DataOwner) -> PrivacyTotal | None:
    """Return where a ledger's counter stands; of none, what this process has released about some of
    these people.

    None: nothing was released.
    """
    if ledger is None:
        return PROCESS.total(owner.hashed)
    return _opened_account(ledger).spent


def _opened_account(ledger: "Ledger | str | Path") -> Ledger:
    if isinstance(ledger, Ledger):
        return ledger
    return Ledger.open(_absolute("ledger", ledger))


def _absolute(name: str, path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"{name}={path!r}: give an agt.Ledger, or the path of a file")
    return Path(os.path.abspath(path))


def _list(ledger: OpenLedger) -> None:
    if note := recognise(ledger):
        warn_user(note, Doubtful)
