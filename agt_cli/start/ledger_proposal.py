"""What the ledger of a table's people would accept, for the commands that ``agt start`` proposes.

It depends on the ledgers and on public settings alone. Nothing is written, and nothing is spent.
"""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from agt.data.ids import resemble_row_numbers
from agt.errors import AgtError
from agt.ledger.descriptions import describe_refusal
from agt.ledger.ledger import SAME_IDS, Ledger, MatchingTable, check_no_other_ledger
from agt.ledger.payer import ProtectedPeople
from agt.ledger.remaining import RemainingBudget
from agt.mechanisms.guarantees import Guarantee, PureDP
from agt.mechanisms.weights_mechanism import weights_mechanisms
from agt_cli.ledger_files import require_ledger
from agt_cli.releasing.ledgers import people_of_run, second_head
from agt_cli.releasing.payer import counting_ledger, ledgers_of
from agt_cli.releasing.spent import free_answers
from agt_cli.report.finished import Run
from agt_cli.report.opening import open_run
from agt_cli.report.proposed_release import HEAD, MECHANISM_OF_LABELS

_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
"""The shares of the planned eps that are proposed where all of it does not fit, the first first."""


_NUMBERED = re.compile(r"\D*\d+\D*")
"""A name with one number, such as 7, P00007 or 17-B."""


@dataclass(frozen=True)
class LedgerProposal:
    """What the ledgers in the working directory mean for a release about a table's people.

    Attributes:
        name: the name of the ledger that counts these people, as ``ledger=`` takes it, or of one
            that is to be opened; empty: no ledger counts them.
        unit: the unit whose data the ledger's budget protects, as the ledger records it; empty: the
            unit that the run states.
        admitted: whether the ledger has admitted this table, and not only another one of these
            people.
        mechanism: the name of the mechanism of the release that is proposed: the planned one, or
            that of labels if only these fit.
        eps: the largest budget, at most the planned one, of a release that it accepts; 0: none.
        labels_eps: the largest eps of labels that fit by themselves, all together.
        max_delta: the delta of the ledger's budget, which the delta of a release should not exceed.
        sentences: sentences on what the owner should know of the ledgers; empty: no ledger is
            found.
        declares_others: whether a new ledger must declare that its people are others than those of
            a ledger with the same numbered ids.
    """

    name: str = ""
    unit: str = ""
    admitted: bool = False
    mechanism: str = ""
    eps: float = 0.0
    labels_eps: float = math.inf
    max_delta: float = 1.0
    sentences: tuple[str, ...] = ()
    declares_others: bool = False

    @classmethod
    def find(
        cls,
        folder: Path,
        mechanism: str,
        eps: float,
        delta: float,
        names: np.ndarray,
        labels_instead: bool = False,
    ) -> "LedgerProposal":
        """Read the ledgers in the working directory, and return what they would accept.

        Errors of ledgers are among the sentences, and are not raised.

        Args:
            folder: the folder of the training run.
            mechanism: the name of the mechanism that is to release from the run.
            eps: the eps of the planned budget of this release.
            delta: the delta of the planned budget of this release.
            names: the names of the run's people.
            labels_instead: labels may be proposed where this mechanism does not fit.
        """
        run = open_run(folder, "train")
        people = people_of_run(run)
        ledgers = ledgers_of(people)
        if ledgers.errors and not ledgers.holding:
            # Any of these files may be the ledger of these people. Beside a ledger that counts
            # them, it is checked below, because its owner may have declared that it does not.
            return cls(
                sentences=tuple(f"No release can be counted: {error}." for error in ledgers.errors)
            )
        if not ledgers.holding:
            return cls(mechanism=mechanism, eps=eps)
        # A ledger that admitted the same data or file comes before one with the same names.
        name, match = min(ledgers.holding.items(), key=lambda item: item[1].by_names)
        show = f"To see its budget, type `agt ledger show {shlex.quote(name)}`."
        try:
            with Ledger.open(require_ledger(name), second_head(), writing=False) as ledger:
                mechanisms = [mechanism]
                if labels_instead:
                    mechanisms.append(MECHANISM_OF_LABELS)
                proposal = cls._accepted_by_ledger(
                    ledger, name, people, mechanisms=mechanisms, eps=eps, delta=delta
                )
                population = ledger.population.name
        except AgtError as error:
            refused = f"It would refuse a release: {error}."
            proposal = cls(name, sentences=(refused,))
            population = ""
        if match.by_names and _may_be_by_chance(names, match.share):
            proposal = replace(proposal, mechanism=mechanism)
            return cls._propose_own_ledger(folder, name, match, proposal, eps)
        sentence = (
            f"These people already have the ledger {name}: it admitted the table {match.name} with "
            f"the same {match.shared}."
        )
        if match.by_names:
            sentence = (
                f"{_shared_ids_sentence(name, match)} What follows takes them for the same people."
            )
        sentences = (sentence, *proposal.sentences)
        if not proposal.eps and population:
            outputs = Path(str(run.config.get("output_dir") or "outputs"))
            sentences += (f"{free_answers(outputs, population)}.",)
        return replace(proposal, sentences=(*sentences, show))

    @classmethod
    def of_counting_ledger(
        cls, run: Run, eps: float = 1.0, delta: float = 1e-5
    ) -> "LedgerProposal":
        """Return what the ledger that counts releases of a run would accept.

        Where no ledger counts them, the whole planned budget is accepted.

        Args:
            run: the training run.
            eps, delta: the planned budget of a release.
        """
        if counting_ledger(run) is None:
            return cls(eps=eps)
        # Names are read only where a ledger has nothing but these, which then counts no release.
        no_names = np.array([], dtype=str)
        return cls.find(run.folder, MECHANISM_OF_LABELS, eps, delta, no_names)

    @classmethod
    def _propose_own_ledger(
        cls,
        folder: Path,
        name: str,
        match: MatchingTable,
        proposal: "LedgerProposal",
        eps: float,
    ) -> "LedgerProposal":
        """Return the proposal of a new ledger, where ids match another ledger's by chance.

        Whether these are other people is left to the owner: the commands have a word to fill in.

        Args:
            folder: the folder of the training run.
            name: the name of the other ledger.
            match: the table of that ledger that has the same ids.
            proposal: what that ledger would accept, if these were its people.
            eps: the planned budget of the release.
        """
        declared = (
            "The commands that follow open a ledger of its own. If these are other people, "
            "declare it: write true for ANSWER. If they are the same people, type instead"
        )
        admission = cls(name, unit=proposal.unit or "UNIT").admission(folder)
        instead = f"{declared} `{admission}`, and give ledger={shlex.quote(name)}."
        of_other_ledger = _name_ledger(name, proposal.sentences)
        sentences = (_shared_ids_sentence(name, match), instead, *of_other_ledger)
        return cls(declares_others=True, mechanism=proposal.mechanism, eps=eps, sentences=sentences)

    @classmethod
    def _accepted_by_ledger(
        cls,
        ledger: Ledger,
        name: str,
        people: ProtectedPeople,
        *,
        mechanisms: Sequence[str],
        eps: float,
        delta: float,
    ) -> "LedgerProposal":
        """Return which releases about some people an open ledger would accept.

        Args:
            ledger: the ledger, open to read.
            name: the name of the ledger, as ``ledger=`` takes it.
            people: the people whom the release is about, with their table.
            mechanisms: the names of the mechanisms that may release from the run; the first one of
                which a release fits is proposed.
            eps, delta: the planned budget of this release.

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
            ledger.path, table, compare_names=not admitted, declared_others=book.declared
        )
        max_delta = population.allowance.delta

        def guarantee_within(mechanism: str, budget: float) -> Guarantee:
            """Return the guarantee of the whole release with this total eps."""
            kind = weights_mechanisms().get(mechanism)
            # All labels together spend at most this, however many they are.
            if kind is None:
                return PureDP(budget)
            return kind.within(budget, min(delta, max_delta) or delta).guarantee

        smaller = [float(f"{share * eps:.2g}") for share in _SHARES]
        remaining = RemainingBudget.after(population.allowance, book.spent)
        for mechanism, budget in product(mechanisms, (eps, *smaller)):
            guarantee = guarantee_within(mechanism, budget)
            if population.allowance.max_lot_size(book.spent, guarantee, 1):
                is_planned = mechanism == mechanisms[0]
                less = ""
                if not is_planned:
                    less = f"Of what is left of its budget, {remaining.sentence()}."
                elif budget < eps:
                    less = f"What is left of its budget holds eps = {budget:g}, not {eps:g}."
                return cls(
                    name,
                    population.unit,
                    admitted,
                    mechanism=mechanism,
                    eps=budget,
                    labels_eps=remaining.labels_eps,
                    # With a delta, a plan would share eps among more labels than the ledger does.
                    max_delta=max_delta if is_planned else 0.0,
                    sentences=(less,) if less else (),
                )
        reason = describe_refusal(population, book.spent, guarantee_within(mechanisms[0], eps))
        sentence = f"{reason[0].upper()}{reason[1:]}."
        return cls(name, population.unit, admitted, sentences=(sentence,))

    def delta(self, planned: float) -> str:
        """Return the delta of a release, as it is typed: the planned one, or the ledger's."""
        return f"{min(planned, self.max_delta):g}"

    def opening(self, run: Path | str, delta: float) -> str:
        """Return the command that opens a new ledger of these people, with the name ``name``.

        Args:
            run: the folder of a training run on the table.
            delta: the delta of the budget of everything that is ever published about these people.
        """
        total = f"total.eps={self.eps:g} total.delta={delta:g}"
        unit = f" unit={shlex.quote(self.unit)}" if self.unit else ""
        opening = f"agt ledger init {self.name} run={run} {total}{unit}"
        return f"{opening}{self._declaration} head={HEAD}"

    @property
    def accepts_a_release(self) -> bool:
        """Whether a release can be counted: by this ledger, or by one that is to be opened."""
        return self.eps > 0

    def admission(self, run: Path | str) -> str:
        """Return the command by which this ledger counts a run's table as well."""
        unit = shlex.quote(self.unit)
        return f"agt ledger admit {shlex.quote(self.name)} run={run} unit={unit}{self._declaration}"

    @property
    def _declaration(self) -> str:
        """A word of commands, in which the owner fills in whether these are other people; or empty.

        agt cannot know whether ids match those of another ledger by chance.
        """
        return " another_population=ANSWER" if self.declares_others else ""


def _shared_ids_sentence(name: str, match: MatchingTable) -> str:
    """Return which ids a table of a ledger shares, and that numbered ids may match by chance."""
    return (
        f"{SAME_IDS} The ledger {name} admitted the table {match.name} with the same "
        f"{match.shared}."
    )


def _may_be_by_chance(names: np.ndarray, share: float) -> bool:
    """Return whether names may be those of other people by chance.

    Names without numbers are not, and of others at most half may be, unless they count rows.

    Args:
        names: [n] str, of one table's people.
        share: how many of the compared names another table has, too.
    """
    if resemble_row_numbers(names):
        return True
    return share < 0.5 and all(map(_NUMBERED.fullmatch, map(str, np.unique(names))))


def _name_ledger(name: str, sentences: tuple[str, ...]) -> tuple[str, ...]:
    """Return sentences about a ledger as one that begins with its name; none if there are none."""
    return (f"Of the ledger {name}: {' '.join(sentences)}",) if sentences else ()
