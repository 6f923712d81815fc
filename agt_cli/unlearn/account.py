"""The account of an erasure, as JSON for programs and auditors: asked, done, guaranteed, left, and
what it does not show.

    account.content         bytes of account.json (docs/erasure.md tells every entry)
    read_account(content)   the same again; refuses other versions, NaN, and what contradicts itself

Formal guarantees
    An account names nobody: every entry is a count, a code, a hash that is keyed or of a whole
    file, a time, or a folder's name. There is no entry for an id, a row or a value of one; tests
    look at the list of entries by name. Sentences are made of these when the account is shown
    (agt/unlearning/sentences.py). What it says of a guarantee is the method's own ``Promise``. What
    it repeats, agt verify compares.
    Accounts of the form agt.erasure/1 held sentences beside numbers, those of agt.erasure/2 facts
    as text: they are read, and their sentences stay text.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from agt.errors import ConfigError
from agt.settings import Digest, content_of, read_document, schema
from agt.templates import IN_WORDS
from agt.unlearning.promise import MethodName, Removal, promise_with_codes, removal_with_codes
from agt.unlearning.sentences import Remark, remark_from_text, remark_with_fact, sentences

VERSION: Literal["agt.erasure/3"] = "agt.erasure/3"
VERSION_WITH_TEXT = "agt.erasure/2"  # whose facts are text
VERSION_IN_WORDS = "agt.erasure/1"
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
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)$")]


@schema
class Asked:
    """The request.

    Attributes:
        people: whose erasure was asked for in this command: units of protection, records where each
            is its own.
        records: of theirs that the run had been trained on.
        by: what the ids of the request named: records, or units with all of their records.
        hashes: keyed hashes that were noted in the request log for it.
        time: when it was noted.
        pending: people whose erasure had been asked for before, and was carried out only now.
        untrained: ids, beside those of ``people``, that are of test records alone: nothing was
            trained on them.
    """

    people: Count
    records: Count
    by: Literal["id", "unit"]
    hashes: Count
    time: Time
    pending: Count = 0
    untrained: Count = 0


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
        reasons: why, at least one.
        state: the digest of the run that it was made from; None: not recorded.
    """

    name: str
    stands: bool
    reasons: Annotated[tuple[Remark, ...], Field(min_length=1)]
    state: Digest | None = None

    @property
    def why(self) -> str:
        """The reasons, as a reader sees them."""
        return "; ".join(sentences(self.reasons))


@schema
class Place:
    """Somewhere that was looked at for what is erased.

    Attributes:
        place: what it is.
        files: how many runs were asked; up to version 0.6.0 also how many files were read.
        found: traces in them.
        remarks: what was found.
    """

    place: Remark
    files: Count
    found: Count
    remarks: tuple[Remark, ...]


@schema
class TraceSearch:
    """The search for traces.

    Attributes:
        places: that were searched.
        unlooked: what was not, with the reason.
    """

    places: tuple[Place, ...]
    unlooked: tuple[Remark, ...]


@schema
class Waiting:
    """Requests that are noted and not carried out.

    Attributes:
        people: whose erasure is pending now.
        distance: a query is answered if its stable distance is at least that, in people; None:
            nothing is answered.
    """

    people: Annotated[int, Field(ge=1)]
    distance: Annotated[int, Field(ge=1)] | None = None


@schema
class ErasureReport:
    """An account, all of it.

    Attributes:
        schema: the version of this form.
        agt: the version of the program.
        asked: the request.
        removal: what the method did and promises; of a request that is noted and pending, no record
            is removed.
        state: the run before and after.
        earlier: answers from earlier states, each standing or void.
        outside: what this account does not show.
        training: seconds that training the run took; None: not recorded.
        sweep: the search for traces; None: none was made.
        waiting: what is pending after this; None: nothing is.
        abstained: queries that were not answered while requests were pending, up to now; None: none
            were pending.

    Raises:
        ConfigError: it contradicts itself.
    """

    schema: Literal["agt.erasure/3"]
    agt: str
    asked: Asked
    removal: Removal
    state: StateChange
    earlier: tuple[Earlier, ...]
    outside: tuple[Remark, ...]
    training: Seconds | None = None
    sweep: TraceSearch | None = None
    waiting: Waiting | None = None
    abstained: Count | None = None

    def __post_init__(self) -> None:
        state, updated = self.state, self.updated
        removed, budget = self.removal.records, self.removal.budget
        rules = {
            (
                "an account of an erasure must report either an update of the run or pending "
                "requests, but not both"
            ): updated == (self.waiting is None),
            "an account of an erasure that did not update the run must not report removed "
            "records": updated or removed == 0,
            "the number of remaining records must be the previous number minus the number of "
            "removed records": (state.records_after == state.records_before - removed),
            "an erasure that updates the run must change the digest of the run": updated
            <= (state.before != state.after),
            "the request log must contain the entry that an account of an erasure is about": (
                state.entry <= int(state.log.split(":")[0])
            ),
            "the removal budget that was spent must not exceed the total removal budget": budget
            is None
            or budget.spent <= budget.total,
        }
        broken_rules = [rule for rule, holds in rules.items() if not holds]
        if broken_rules:
            rule = broken_rules[0]
            raise ConfigError(
                "account.json was altered or damaged after agt wrote it, because it breaks "
                f"this rule: {rule}. Restore it from a backup"
            )

    @property
    def updated(self) -> bool:
        """The run's state was replaced; else the request is noted and pending."""
        return self.removal.promise.method != PENDING

    @property
    def content(self) -> bytes:
        """The file."""
        return content_of(self)


def read_account(content: bytes) -> ErasureReport:
    """What ``ErasureReport.content`` gave, or an account of an earlier form in that of now.

    Raises:
        ConfigError: another version, or no account: no JSON, NaN or infinity, an entry unknown,
            missing or out of range; or one that contradicts itself.
    """
    return read_document(ErasureReport, content, VERSION, "an account", "account", _of_earlier_form)


def recorded_in_words(account: ErasureReport) -> int:
    """Return how many sentences an account has that an earlier version recorded as text."""
    promise, sweep = account.removal.promise, account.sweep
    groups = [account.removal.steps, promise.terms, account.outside]
    groups += [earlier.reasons for earlier in account.earlier]
    if sweep is not None:
        groups += [sweep.unlooked, *((place.place, *place.remarks) for place in sweep.places)]
    in_words = sum(remark.code == IN_WORDS for remarks in groups for remark in remarks)
    return in_words + sum(fact.in_words for fact in promise.assumptions)


def _of_earlier_form(node: dict[str, Any]) -> dict[str, Any]:
    """Return an account of an earlier form in that of now, its sentences as text; others as they
    are.

    Raises:
        ConfigError: it is in no such form.
    """
    version = node.get("schema")
    forms = {VERSION_IN_WORDS: _from_sentences, VERSION_WITH_TEXT: _from_text_of_facts}
    if version not in forms:
        return node
    try:
        return forms[version]({**node, "schema": VERSION})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"account.json was altered or damaged after agt wrote it (format {version}: an "
            f"entry is missing or has the wrong type: {error}). Restore it from a backup"
        ) from None


def _from_text_of_facts(parts: dict[str, Any]) -> dict[str, Any]:
    """Raises KeyError, TypeError, ValueError, AttributeError."""
    removal = removal_with_codes(parts["removal"])
    promise = promise_with_codes(removal["promise"])
    earlier = [
        {**each, "reasons": [remark_with_fact(reason) for reason in each["reasons"]]}
        for each in parts["earlier"]
    ]
    return {**parts, "removal": {**removal, "promise": promise}, "earlier": earlier}


def _from_sentences(parts: dict[str, Any]) -> dict[str, Any]:
    """Raises KeyError, TypeError, ValueError, AttributeError."""
    done, promise = dict(parts.pop("done")), dict(parts.pop("guaranteed"))
    promise["method"] = done.pop("method")
    promise["adaptive"] = promise.pop("requests") == "adaptive"
    if "training" in done:
        parts["training"] = done.pop("training")
    if "budget" in parts:
        done["allowance"] = parts.pop("budget")
    parts["removal"] = {"promise": promise_with_codes(promise), **removal_with_codes(done)}
    parts["outside"] = [remark_from_text(text) for text in parts["outside"]]
    parts["earlier"] = [_earlier_in_words(dict(earlier)) for earlier in parts["earlier"]]
    if "sweep" in parts:
        parts["sweep"] = _search_in_words(dict(parts["sweep"]))
    return parts


def _earlier_in_words(earlier: dict[str, Any]) -> dict[str, Any]:
    reasons = [remark_from_text(earlier.pop("why"))]
    return {**earlier, "reasons": reasons}


def _search_in_words(search: dict[str, Any]) -> dict[str, Any]:
    unlooked = [remark_from_text(text) for text in search["unlooked"]]
    return {
        **search,
        "places": [_place_in_words(dict(place)) for place in search["places"]],
        "unlooked": unlooked,
    }


def _place_in_words(place: dict[str, Any]) -> dict[str, Any]:
    remarks = [remark_from_text(place.pop("words"))]
    return {**place, "place": remark_from_text(place["place"]), "remarks": remarks}
