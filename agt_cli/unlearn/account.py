"""The account of an erasure: a report as JSON, for programs and auditors.

It says what was requested, what was done, what is guaranteed, what remains, and what is not shown.

    account.content         the bytes of account.json (docs/erasure.md describes every entry)
    read_account(content)   reads them; refuses other versions, NaN, and contradictions

Formal guarantees
    An account names nobody: every entry is a count, a code, a hash that is keyed or of a whole
    file, a time, or a folder's name. There is no entry for an id, a row or a value of one; tests
    look at the list of entries by name. Sentences are made of these when the account is shown
    (agt/unlearning/sentences.py). What it says of a guarantee is the method's own ``Promise``. What
    it repeats, agt verify compares.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from agt.documents import content_of, read_document
from agt.errors import ConfigError
from agt.settings import Count, Digest, NonNegative, NonNegativeInt, schema
from agt.unlearning.promise import MethodName, Removal
from agt.unlearning.sentences import Remark, sentences

VERSION: Literal["agt.erasure/4"] = "agt.erasure/4"
PENDING: MethodName = "certificate"  # the method that replaces no state
OUTSIDE = tuple(
    Remark(code)
    for code in (
        "not_for_publication",
        "earlier_answers_remain",
        "copies_not_reached",
        "askers_not_checked",
        "others_tell",
        "below_files",
        "choice_of_requests",
        "guesses_can_be_tested",
    )
)
"""What no account shows."""
TRACES = (
    "trained_on_erased",
    "learner_trained_on_erased",
    "training_unfinished",
    "training_stopped",  # written by versions before 0.22
)
"""Codes of remarks that name runs with traces."""
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)$")]


@schema
class Asked:
    """How many people, records and ids a request names.

    A person is a unit of protection: whoever has the records of one unit, or, in data without
    units, a record.

    Attributes:
        people_requested: people whose erasure this request asks for and who have a record in the
            run's data: the sum of the next two.
        people_with_training_records: people of whom the request names a record that the run was
            trained on.
        people_with_test_records_only: people of whom the request names only records that training
            did not use.
        training_records: the number of named records that the run was trained on.
        test_records: records of the request in the test part of the data, which training did not
            use; None: not recorded, as in accounts of earlier versions.
        by: what the ids of the request name: records, or units with all of their records.
        hashes_in_log: how many keyed hashes the request log stores for the request: one for each
            training record, and one for each unit, unless each record is a separate unit.
        time: when the request was noted.
        people_pending_before: people whose erasure had been requested earlier, and was carried out
            only now.
        ids_not_in_data: ids that name no record of the run's data, and that the request allowed
            (``unknown=ignore``).
    """

    people_requested: NonNegativeInt
    people_with_training_records: NonNegativeInt
    people_with_test_records_only: NonNegativeInt
    training_records: NonNegativeInt
    by: Literal["id", "unit"]
    hashes_in_log: NonNegativeInt
    time: Time
    people_pending_before: NonNegativeInt = 0
    test_records: NonNegativeInt | None = None
    ids_not_in_data: NonNegativeInt = 0


@schema
class StateChange:
    """The states of the run before and after the command.

    Attributes:
        run: the name of the run's folder.
        before, after: the run's digests.
        records_before, records_after: how many records the run is trained on.
        log: the number and hash of the last entry of the request log, as COUNT:HASH.
        entry: the number of this erasure's entry in the log.
    """

    run: str
    before: Digest
    after: Digest
    records_before: NonNegativeInt
    records_after: NonNegativeInt
    log: Annotated[str, Field(pattern=r"^[1-9]\d*:[0-9a-f]{64}$")]
    entry: Count

    @property
    def log_entries(self) -> int:
        """How many entries the request log had after this erasure."""
        return int(self.log.split(":")[0])


@schema
class Earlier:
    """A certification or a release that was made from an earlier state of the run.

    Attributes:
        name: the name of its folder, with the command's.
        answers_standing: how many of its answers may be relied on as before. Released weights are
            one answer.
        answers_void: how many may not.
        reasons: why, at least one.
        state: the digest of the run that it was made from; None: not recorded.
    """

    name: str
    answers_standing: NonNegativeInt
    answers_void: NonNegativeInt
    reasons: Annotated[tuple[Remark, ...], Field(min_length=1)]
    state: Digest | None = None

    @property
    def why(self) -> str:
        """The reasons, as a reader sees them."""
        return "; ".join(sentences(self.reasons))


@schema
class Place:
    """A folder that was searched for erased records in other runs.

    Attributes:
        place: a description of the folder.
        runs: how many other runs and interrupted trainings are there.
        searched: how many of these were compared with every record and person of the request.
        found: how many traces were found: records that this or an earlier request erased, and
            unfinished trainings. If not all runs were searched, 0 does not mean that there are
            none.
        remarks: what was found, and what was not searched.
    """

    place: Remark
    runs: NonNegativeInt
    found: NonNegativeInt
    remarks: tuple[Remark, ...]
    searched: NonNegativeInt

    @property
    def names_traces(self) -> bool:
        """Whether a remark names runs with traces."""
        return any(remark.code in TRACES for remark in self.remarks)


@schema
class TraceSearch:
    """The search for erased records in other runs.

    Attributes:
        places: the folders that were searched.
        unlooked: what was not searched, with the reason.
    """

    places: tuple[Place, ...]
    unlooked: tuple[Remark, ...]


@schema
class Waiting:
    """Requests that are pending, and what they mean for queries.

    Attributes:
        people: how many people's erasure is pending now.
        distance: a query is answered only if its stable distance, in people, is at least this
            number; None: no query is answered.
    """

    people: Count
    distance: Count | None = None


@schema
class ErasureReport:
    """The whole account (report) of an erasure.

    Attributes:
        schema: the version of this format.
        agt: the version of the program.
        asked: the request.
        removal: what the method did and promises. If the request is pending, no record is removed.
        state: the run before and after.
        earlier: results that were made from earlier states, with how many answers are still valid.
        outside: what this account does not show.
        training: how many seconds the training of the run took; None: not recorded.
        sweep: the search for erased records in other runs; None: there was no search.
        waiting: the requests that are pending after this command; None: there are none.
        abstained: how many queries were not answered while requests were pending, up to now; None:
            no requests were pending.

    Raises:
        ConfigError: two entries contradict each other.
    """

    schema: Literal["agt.erasure/4"]
    agt: str
    asked: Asked
    removal: Removal
    state: StateChange
    earlier: tuple[Earlier, ...]
    outside: tuple[Remark, ...]
    training: NonNegative | None = None
    sweep: TraceSearch | None = None
    waiting: Waiting | None = None
    abstained: NonNegativeInt | None = None

    def __post_init__(self) -> None:
        rule = next(self._broken_rules(), None)
        if rule is not None:
            raise ConfigError(
                "account.json was altered or damaged after agt wrote it, because it breaks "
                f"this rule: {rule}. Restore it from a backup"
            )

    def _broken_rules(self) -> Iterator[str]:
        """Yield each rule between entries that this account breaks."""
        state = self.state
        removed = self.removal.records
        budget = self.removal.budget
        asked = self.asked
        people = asked.people_with_training_records + asked.people_with_test_records_only
        if self.updated == (self.waiting is not None):
            yield (
                "an account of an erasure must report either an update of the run or pending "
                "requests, but not both"
            )
        if removed and not self.updated:
            yield (
                "an account of an erasure that did not update the run must not report removed "
                "records"
            )
        if state.records_after != state.records_before - removed:
            yield (
                "the number of remaining records must be the previous number minus the number of "
                "removed records"
            )
        if self.updated and state.before == state.after:
            yield "an erasure that updates the run must change the digest of the run"
        if state.entry > state.log_entries:
            yield "the request log must contain the entry that an account of an erasure is about"
        if budget is not None and budget.spent > budget.total:
            yield "the removal budget that was spent must not exceed the total removal budget"
        if asked.people_requested != people:
            yield (
                "the people who requested erasure must be those with training records and those "
                "with test records only"
            )
        for place in self.places:
            if place.searched > place.runs:
                yield "no more runs can have been searched than were found"
            if bool(place.found) != place.names_traces:
                yield "a number of traces must come with the runs in which they were found"

    @property
    def places(self) -> tuple[Place, ...]:
        """The folders that were searched for traces; none: there was no search."""
        return () if self.sweep is None else self.sweep.places

    @property
    def updated(self) -> bool:
        """Whether the run's state was replaced; if not, the request is pending."""
        return self.removal.promise.method != PENDING

    @property
    def content(self) -> bytes:
        """The bytes of account.json."""
        return content_of(self)


def read_account(content: bytes) -> ErasureReport:
    """Return the account that a file contains.

    Args:
        content: the bytes of account.json.

    Raises:
        Superseded: it has a form that versions before 0.15 wrote.
        ConfigError: the content is no JSON, has NaN or infinity, or is of an unknown version; an
            entry is unknown, missing or out of range; or two entries contradict each other.
    """
    return read_document(
        ErasureReport, content, VERSION, name="the account of an erasure", key="account"
    )
