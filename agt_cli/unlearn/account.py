"""The account of an erasure, as JSON for programs and auditors: asked, done, guaranteed, left, and what it does not show.

    account.content                 bytes of account.json (docs/erasure.md tells every entry)
    read_account(content)           the same again; refuses other versions, NaN, and what contradicts itself

Formal guarantees
    An account names nobody: every entry is a count, a hash that is keyed or of a whole file, a time, a folder's name, or a
    sentence that was made from these. There is no entry for an id, a row or a value of one; tests look at the list of
    entries by name. What it says of a guarantee is the method's ``Promise``, word by word; ``requests`` says adaptive only
    where the promise does. What it repeats, agt verify compares.
"""

from typing import Annotated, Literal

from pydantic import Field

from agt import __version__
from agt.errors import ConfigError
from agt.facts import Fact
from agt.settings import Digest, content_of, read_document, schema
from agt.unlearning.promise import MethodName, Removal, RemovalBudget, Requests

VERSION: Literal["agt.erasure/1"] = "agt.erasure/1"
PENDING: MethodName = "certificate"  # the method that replaces no state
OUTSIDE = (
    "anything that may be published: it is for the owner and an auditor. Budget, counts and times depend on the records, "
    "those that went among them, and no guarantee is about that",
    "what was answered and published before: it stays with whoever has it",
    "copies that somebody took: backups, exports, the table that the run was trained on, other runs on the same people",
    "that those who asked were who they said, and that every record of theirs has the id or unit that was given",
    "what the records that stay say about those that went: relatives, duplicates under other ids, what all have in common",
    "traces below files: freed blocks of a disk, snapshots of a file system, memory",
    "what the choice of requests tells by itself: where somebody asked because of what the model showed of others, that "
    "they asked is seen in who is left; no method undoes that",
    "guesses: digests of earlier states stay, here and in earlier records, and whoever has every other record can test a "
    "guess of an erased one against them; whoever has unlearning/key of the run can ask whether an id was erased",
)
Words = tuple[str, ...]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)$")]


@schema
class Asked:
    """The request.

    Attributes:
        people: whose erasure was asked for in this command: units of protection, records where each is its own.
        records: of theirs that the run had been trained on.
        by: what the ids of the request named: records, or units with all of their records.
        hashes: keyed hashes that were noted in the request log for it.
        time: when it was noted.
        pending: people whose erasure had been asked for before, and was carried out only now.
        untrained: ids, beside those of ``people``, that are of test records alone: nothing was trained on them.
    """

    people: Count
    records: Count
    by: Literal["id", "unit"]
    hashes: Count
    time: Time
    pending: Count = 0
    untrained: Count = 0


@schema
class Done:
    """What was carried out.

    Attributes:
        method: its name.
        records: that were removed from the run's state; 0 where the request is noted and pending.
        seconds: of the method.
        words: a line each.
        facts: its own flat numbers: members trained again, bounds, noise.
        training: seconds that training the run took; None: not recorded.
    """

    method: MethodName
    records: Count
    seconds: Seconds
    words: Words
    facts: dict[str, bool | int | float | str]
    training: Seconds | None = None


@schema
class Guaranteed:
    """The method's promise.

    Attributes:
        exact, eps, delta, words, assumptions, within: as in ``Promise``.
        requests: for which it holds: those chosen without looking at what the model gave out; whoever chose them, with the
            run's seed and keys as they are; whoever chose them.
    """

    exact: bool
    eps: Annotated[float, Field(ge=0)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    requests: Requests
    words: Annotated[Words, Field(min_length=1)]
    assumptions: tuple[Fact, ...]
    within: Annotated[float, Field(ge=0)] | None = None

    def __post_init__(self) -> None:
        if self.within is not None and not self.exact:
            raise ConfigError(f"within={self.within}: what is not exact is within no distance alone")
        if self.exact and (self.eps or self.delta):
            raise ConfigError(f"({self.eps}, {self.delta}) is no guarantee of exactness")


@schema
class StateChange:
    """The run before and after.

    Attributes:
        run: the name of its folder.
        before, after: its digests.
        records_before, records_after: that it is trained on.
        log: where the request log ends, as COUNT:HASH.
        entry: the number of this erasure's entry in it.
    """

    run: str
    before: Digest
    after: Digest
    records_before: Count
    records_after: Count
    log: Annotated[str, Field(pattern=r"^[1-9]\d*:[0-9a-f]{64}$")]
    entry: Annotated[int, Field(ge=1)]


@schema
class Earlier:
    """An answer, a certificate or a release that was made from an earlier state.

    Attributes:
        name: of its folder, with the command's.
        stands: it may be relied on as before; else it is void.
        why: in words.
        state: the digest of the run that it was made from; None: not recorded.
    """

    name: str
    stands: bool
    why: str
    state: Digest | None = None


@schema
class Place:
    """Somewhere that was looked at for what is erased.

    Attributes:
        place: in words.
        files: how many runs were asked; up to version 0.6.0 also how many files were read.
        found: traces in them.
        words: how it was looked at, and what was found.
    """

    place: str
    files: Count
    found: Count
    words: str


@schema
class TraceSearch:
    """The search for traces.

    Attributes:
        places: that were searched.
        unlooked: what was not, in words, with the reason.
    """

    places: tuple[Place, ...]
    unlooked: Words


@schema
class Waiting:
    """Requests that are noted and not carried out.

    Attributes:
        people: whose erasure is pending now.
        distance: a query is answered if its stable distance is at least that, in people; None: nothing is answered.
    """

    people: Annotated[int, Field(ge=1)]
    distance: Annotated[int, Field(ge=1)] | None = None


@schema
class ErasureReport:
    """An account, all of it.

    Attributes:
        schema: the version of this form.
        agt: the version of the program.
        asked, done, guaranteed, state: what its parts say.
        earlier: answers from earlier states, each standing or void.
        outside: what this account does not show.
        sweep: the search for traces; None: none was made.
        budget: what is left of the removal budget; None: the method needs none.
        waiting: what is pending after this; None: nothing is.
        abstained: queries that were not answered while requests were pending, up to now; None: none were pending.

    Raises:
        ConfigError: it contradicts itself.
    """

    schema: Literal["agt.erasure/1"]
    agt: str
    asked: Asked
    done: Done
    guaranteed: Guaranteed
    state: StateChange
    earlier: tuple[Earlier, ...]
    outside: Words
    sweep: TraceSearch | None = None
    budget: RemovalBudget | None = None
    waiting: Waiting | None = None
    abstained: Count | None = None

    def __post_init__(self) -> None:
        state, updated = self.state, self.updated
        rules = {
            "pending requests replace no state, and an update leaves nothing pending": updated == (self.waiting is None),
            "only an update removes records": updated or self.done.records == 0,
            "the records that are left are those before, without the removed": (
                state.records_after == state.records_before - self.done.records
            ),
            "an update has another digest than the state before": updated <= (state.before != state.after),
            "the entry is one of the log": state.entry <= int(state.log.split(":")[0]),
            "the budget is not overdrawn": self.budget is None or self.budget.spent <= self.budget.total,
        }
        wrong = [rule for rule, holds in rules.items() if not holds]
        if wrong:
            raise ConfigError(f"an account contradicts itself: {wrong[0]}")

    @property
    def updated(self) -> bool:
        """The run's state was replaced; else the request is noted and pending."""
        return self.done.method != PENDING

    @property
    def content(self) -> bytes:
        """The file."""
        return content_of(self)


def account_of(
    removal: Removal,
    *,
    asked: Asked,
    state: StateChange,
    training: float | None,
    earlier: tuple[Earlier, ...] = (),
    sweep: TraceSearch | None = None,
    waiting: Waiting | None = None,
    abstained: int | None = None,
    unlooked: Words = (),
) -> ErasureReport:
    """The account of one erasure.

    Args:
        removal: what the method says of it.
        training: seconds that training the run took; None: not recorded.
        unlooked: more that this account does not show, beside what none does.
        others: as in ``ErasureReport``.

    Raises:
        ConfigError: they contradict each other.
    """
    promise = removal.promise
    return ErasureReport(
        schema=VERSION,
        agt=__version__,
        asked=asked,
        done=Done(promise.method, removal.records, removal.seconds, removal.words, dict(removal.facts), training),
        guaranteed=Guaranteed(
            promise.exact,
            promise.eps,
            promise.delta,
            promise.requests,
            promise.words,
            promise.assumptions,
            promise.within,
        ),
        state=state,
        earlier=earlier,
        outside=(*unlooked, *OUTSIDE),
        sweep=sweep,
        budget=removal.allowance,
        waiting=waiting,
        abstained=abstained,
    )


def read_account(content: bytes) -> ErasureReport:
    """What ``ErasureReport.content`` gave.

    Raises:
        ConfigError: another version, or no account: no JSON, NaN or infinity, an entry unknown, missing or out of range; or
            one that contradicts itself.
    """
    return read_document(ErasureReport, content, VERSION, "an account")
