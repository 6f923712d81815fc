"""The ledger that already counts the people of a training run, for the commands that name it.

Nothing is written, and no budget is spent.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from agt.ledger.ledger import Ledger
from agt_cli.ledger_files import existing_ledger
from agt_cli.releasing.ledgers import people_of_run
from agt_cli.releasing.payer import ledgers_of
from agt_cli.report.opening import open_run
from agt_cli.report.proposed_release import admission_command


@dataclass(frozen=True)
class ExistingLedger:
    """A ledger that already counts releases about the people of a table.

    Attributes:
        name: what ``ledger=`` takes.
        unit: whose data its budget protects, in its own words.
        admitted: whether it has admitted this table, and not only another one of these people.
        sentence: for the owner, that these people have a ledger, and how that was found.
    """

    name: str
    unit: str
    admitted: bool
    sentence: str

    @classmethod
    def find(cls, folder: Path) -> "ExistingLedger | None":
        """Return the first ledger in the working directory that counts the people of a run.

        Args:
            folder: of the training run.

        Returns:
            None if there is no such ledger. A file that cannot be opened is passed over, because
            ``agt ledger init`` names it.
        """
        people = people_of_run(open_run(folder, "train"))
        holding, _ = ledgers_of(people)
        if not holding:
            return None
        name, match = next(iter(holding.items()))
        with Ledger.open(existing_ledger(name), writing=False, as_copy=True) as ledger:
            unit = ledger.population.unit
            admitted = people.table.data in ledger.book.tables
        sentence = (
            f"These people already have the ledger {name}: it admitted the table {match.name} with "
            f"the same {match.shared}. To see what is left of its budget, type `agt ledger show "
            f"{shlex.quote(name)}`."
        )
        return cls(name, unit, admitted, sentence)

    def admission(self, run: Path | str) -> list[str]:
        """Return the command that admits the table of a run."""
        return [f"agt {admission_command(self.name, run, self.unit)}"]
