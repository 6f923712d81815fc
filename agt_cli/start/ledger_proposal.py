"""What the ledger of a table's people would accept, for the commands that ``agt start`` proposes.

It depends on the ledgers and on public settings alone. Nothing is written, and nothing is spent.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from agt.errors import AgtError
from agt.ledger.descriptions import describe_refusal
from agt.ledger.ledger import NUMBERED_IDS, Ledger, check_no_other_ledger
from agt.ledger.payer import ProtectedPeople
from agt.mechanisms.guarantees import Guarantee, PureDP
from agt.mechanisms.weights_mechanism import weights_mechanisms
from agt_cli.ledger_files import existing_ledger
from agt_cli.releasing.ledgers import people_of_run, second_head
from agt_cli.releasing.payer import ledgers_of
from agt_cli.releasing.spent import free_answers
from agt_cli.report.opening import open_run
from agt_cli.report.proposed_release import admission_command

_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
"""The shares of the planned eps that are proposed where all of it does not fit, the first first."""


@dataclass(frozen=True)
class LedgerProposal:
    """What the ledgers in the working directory mean for a release about a table's people.

    Attributes:
        name: of the ledger that counts these people, as ``ledger=`` takes it; empty: there is none.
        unit: whose data its budget protects, as the ledger records it.
        admitted: whether it has admitted this table, and not only another one of these people.
        eps: the largest budget, at most the planned one, of a release that it accepts; 0: none.
        sentences: what the owner should know of the ledgers; empty: there are none.
    """

    name: str = ""
    unit: str = ""
    admitted: bool = False
    eps: float = 0.0
    sentences: tuple[str, ...] = ()

    @classmethod
    def find(cls, folder: Path, mechanism: str, eps: float, delta: float) -> "LedgerProposal":
        """Read the ledgers in the working directory, and return what they would accept.

        Errors of ledgers are among the sentences, and are not raised.

        Args:
            folder: of the training run.
            mechanism: the name of the mechanism that is to release from the run.
            eps: of the planned budget of this release.
            delta: likewise.
        """
        run = open_run(folder, "train")
        people = people_of_run(run)
        holding, errors = ledgers_of(people)
        if errors and not holding:
            # Any of these files may be the ledger of these people. Beside a ledger that counts
            # them, it is checked below, because its owner may have declared that it does not.
            return cls(sentences=tuple(f"No release can be counted: {error}." for error in errors))
        if not holding:
            return cls(eps=eps)
        name, match = next(iter(holding.items()))
        found = (
            f"These people already have the ledger {name}: it admitted the table {match.name} with "
            f"the same {match.shared}."
        )
        if match.by_names:
            found = (
                f"{NUMBERED_IDS} The ledger {name} admitted the table {match.name} with the same "
                f"{match.shared}. If these are other people, open a ledger of their own "
                f"(agt ledger init NAME run={folder} another_population=true), or train with "
                "another id column. What follows takes them for the same people."
            )
        show = f"To see its budget, type `agt ledger show {shlex.quote(name)}`."
        try:
            with Ledger.open(existing_ledger(name), second_head(), writing=False) as ledger:
                proposal = cls._accepted_by(
                    ledger, name, people, mechanism=mechanism, eps=eps, delta=delta
                )
                population = ledger.population.name
        except AgtError as error:
            refused = f"It would refuse a release: {error}."
            return cls(name, sentences=(found, refused, show))
        sentences = (found, *proposal.sentences)
        if not proposal.eps:
            outputs = Path(str(run.config.get("output_dir") or "outputs"))
            sentences += (f"{free_answers(outputs, population)}.",)
        return cls(name, proposal.unit, proposal.admitted, proposal.eps, (*sentences, show))

    @classmethod
    def _accepted_by(
        cls,
        ledger: Ledger,
        name: str,
        people: ProtectedPeople,
        *,
        mechanism: str,
        eps: float,
        delta: float,
    ) -> "LedgerProposal":
        """Return what an open ledger would accept; other arguments as of ``find``.

        Args:
            ledger: the ledger, open to read.
            name: as ``ledger=`` takes it.
            people: those whom the release is about, with their table.

        Raises:
            ConfigError: it would not pay for any release about these people.
        """
        table = people.table
        book = ledger.book
        population = ledger.population
        admitted = table.data in book.tables
        population.check_relation(people.relation)
        if admitted:
            ledger.check(people.relation, table.data, table.unit)
        check_no_other_ledger(
            ledger.path, table, compare_names=not admitted, declared=book.declared
        )
        kind = weights_mechanisms().get(mechanism)

        def guarantee_within(budget: float) -> Guarantee:
            """Return the guarantee of the whole release with this total eps."""
            # All labels together spend at most this, however many they are.
            return PureDP(budget) if kind is None else kind.within(budget, delta).guarantee

        smaller = [float(f"{share * eps:.2g}") for share in _SHARES]
        for budget in (eps, *smaller):
            guarantee = guarantee_within(budget)
            if population.allowance.max_lot_size(book.spent, guarantee, 1):
                less = f"What is left of its budget holds eps = {budget:g}, not {eps:g}."
                return cls(name, population.unit, admitted, budget, (less,) if budget < eps else ())
        reason = describe_refusal(population, book.spent, guarantee_within(eps))
        return cls(name, population.unit, admitted, sentences=(f"{reason}.",))

    @property
    def accepts_a_release(self) -> bool:
        """Whether a release can be counted: by this ledger, or by one that is to be opened."""
        return self.eps > 0

    def admission(self, run: Path | str) -> list[str]:
        """Return the command that admits the table of a run."""
        return [f"agt {admission_command(self.name, run, self.unit)}"]
