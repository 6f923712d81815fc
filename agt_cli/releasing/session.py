"""agt predict inputs=-: questions as JSON lines on standard input, answered as they come, from a
model that is loaded once.

{"id": "a17", "record": {"age": 37, "town": "Graz"}}     a record of a table, by column
{"id": 4, "features": [0.1, -2.5]}                one of an array
{"id": "b", "records": [{...}, {...}]}            several, paid as one lot; of arrays [[...], [...]]

Formal guarantees
    * A line whose queries look like another population's
      (``agt.data.population.population_mismatches``) is refused before anything is paid, unless
      ``force``: by its own queries and public constants, whatever other lines held.
    * Nothing is certified but what ``LotPayer.reserve`` returned: it was debited before, with its
      line or in advance (``lot``), or, without a ledger, spent.json says so. How many are paid at
      once, when, and which are refused depends on lines, on what was answered before, and on the
      ledger's counter. What is left of a lot at the end stays spent.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from agt.data.arrays import gathered
from agt.data.records import UNANSWERED
from agt.data.sent_records import columns_of
from agt.errors import AgtError, CheckError, ConfigError, DataError
from agt.ledger.chain import HALF_CHARACTER
from agt.ledger.lots import LotPayer
from agt.ledger.questions import Questions
from agt.mechanisms.claims import Claim
from agt.mechanisms.labelling import AnyLabelling
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.totals import claim_of_labels
from agt.release import LabelRelease, judge_labelling
from agt.settings import plain_of
from agt.store.json_text import parse_object
from agt.store.reading import Broken
from agt_cli.process import is_stdout_dropped, write_line
from agt_cli.releasing.request import PredictRequest
from agt_cli.releasing.spent import Spending, subject_of, write_spent
from agt_cli.releasing.writing import ReleasePage

METRICS = ("lines", "bad_lines", "n_queries", "answered", "stored", "unanswered")
MAX_LINE_BYTES = 2**24
ENTRIES = ("record", "records", "features")
OVER = "this session has ended and does not answer any more queries"
"""The error in the answer to a query if the run was changed during the session. It names neither
the run nor the reason, which are for the owner, on stderr.
"""


def serve(request: PredictRequest, lot: int) -> dict[str, Any]:
    """Answer queries from standard input, line by line, until it ends; then finish the record.

    Args:
        request: the request that agt predict received, without a file of queries.
        lot: how many queries are paid for at once; at least as many as a line needs.

    Returns:
        The metrics and the claim, as the object that --json prints.

    Raises:
        ConfigError: the settings do not suit queries that come line by line. Nothing was answered.
        CheckError: the budget was too small for some queries, or the run was changed during the
            session. The record is finished.
    """
    session = Session.opened(request, lot)
    console = request.console
    if console.json:
        raise ConfigError(
            "--json has no effect with inputs=-, because answers are already printed as JSON, "
            "one per line: leave --json out"
        )
    for text in request.earlier_attempts:
        console.note(text)
    if sys.stdin.isatty():
        console.note(
            'type one query per line, for example {"id": 1, "record": {...}}; to end the '
            "session, press Ctrl-D"
        )
    queries = request.config.total.queries or lot
    if warning := request.payer.closing_warning(session.claim.guarantee, queries):
        console.warn(warning)
    put_line({"claim": plain_of(session.claim.for_file())})
    try:
        for number, line in read_lines(sys.stdin.buffer):
            session.hear(number, line)
            if session.over or is_stdout_dropped():
                break
    finally:
        session.lots.store_remaining_answers()
    return session.close()


class Session:
    """Answers lines of queries with one model and one mechanism.

    The labels of each line are a separate release (``LabelRelease``) under a claim that was
    judged once, and budget for them is reserved in lots.

    Attributes:
        request: the request that agt predict received.
        labelling: the model, the mechanism and the claim of one answer.
        lots: reserves the budget.
        terms: the terms on which lines are judged, paid for (by ``lots``) and drawn.
        counts: the metrics of ``METRICS`` so far.
        over: the reason why the session does not answer any more lines; empty: it answers more.
    """

    def __init__(self, request: PredictRequest, labelling: AnyLabelling, lots: LotPayer) -> None:
        self.request = request
        self.labelling = labelling
        self.lots = lots
        self.terms = replace(request.terms, payer=lots)
        self.counts = Counter(dict.fromkeys(METRICS, 0))
        self.over = ""
        self._source: Any = request.opened.stored.source

    @classmethod
    def opened(cls, request: PredictRequest, lot: int) -> "Session":
        """Return a session with the guarantee that may be claimed of its answers.

        Nothing is paid for yet.

        Args:
            request: the request that agt predict received, without a file of queries.
            lot: how many queries are paid for at once.

        Raises:
            ConfigError: the settings do not suit queries that come line by line, or the claim is
                refused.
        """
        total = request.config.total
        opened = request.opened
        terms = request.terms
        if total.eps is not None and total.queries is None:
            raise ConfigError(
                "total.eps=... is divided among all queries, but with inputs=- their number is "
                "not known: give total.queries=..., or give mechanism.eps=... instead of "
                "total.eps=..."
            )
        mechanism = request.mechanism(total.queries or 1)
        if not isinstance(mechanism, Mechanism | LaplaceMean):
            raise ConfigError(
                f"mechanism={mechanism.name} cannot answer queries line by line (inputs=-): give "
                "a file of queries with inputs=FILE"
            )
        source = opened.stored.source
        if not hasattr(source, "read_queries"):
            dataset_class = type(source).__name__
            raise ConfigError(
                f"inputs=-: the dataset class {dataset_class} can read queries only from files: "
                "give a file with inputs=FILE. To read them line by line, the class needs a "
                "method read_queries(columns)"
            )
        labelling = judge_labelling(opened.model, mechanism, terms)
        claim = replace(labelling.claim, simulated=terms.randomness.simulated)
        request.payer.check(claim)
        return cls(
            request, replace(labelling, claim=claim), LotPayer(request.payer, lot, total.queries)
        )

    @property
    def claim(self) -> Claim:
        """The claim of the answers that were paid for so far.

        Its totals are those of as many answers as the session may give at most; it has none if
        there is no maximum.
        """
        reserved = self.lots.reserved
        maximum = self.lots.maximum
        of_one_answer = self.labelling.claim
        totals = claim_of_labels(of_one_answer, maximum, self.terms.delta).totals if maximum else ()
        claim = replace(
            of_one_answer,
            one_by_one=True,
            totals=totals,
            most=maximum,
            releases=reserved or 1,
            answers=reserved or None,
        )
        return claim.with_account(self.lots.account(self.lots.newest))

    @property
    def exhausted_because(self) -> str:
        """The reason why no further label may be drawn, as part of a sentence."""
        if self.lots.at_maximum:
            maximum = self.lots.maximum
            return f"this session has answered total.queries={maximum} queries, which is its limit"
        population = self.request.payer.name
        guarantee = self.labelling.claim.guarantee
        return (
            f"the remaining budget of the ledger of {population} is too small for another "
            f"label (each label costs {guarantee})"
        )

    def hear(self, number: int, line: bytes | None) -> None:
        """Print the answer to one line: labels, or an error.

        An error in the line itself is counted, and the session goes on. If the run was changed, the
        session is over (``over``).

        Args:
            number: the number of the line, counted from 1.
            line: the content of the line; None: the line is too long.
        """
        self.counts["lines"] += 1
        line_id = None
        try:
            opened = open_line(line)
            line_id = opened.line_id
            queries = queries_of_line(opened.entries, getattr(self._source, "x", "x"))
            # The state of the run is checked last, right before anything is paid for, so that no
            # label of an earlier state is released.
            features = self._features(queries.rows, f"line {number}")
            self.request.opened.check_current()
        except CheckError as error:
            self.over = str(error)
            put_line({"id": line_id, "error": OVER, "code": error.exit_code})
            return
        except AgtError as error:
            self.counts["bad_lines"] += 1
            put_line({"id": line_id, "error": str(error), "code": ConfigError.exit_code})
            return
        release = LabelRelease.from_labelling(self.labelling, features, self.terms)
        labels = self._draw(release)
        answer = self._answer(queries.answers_as_list, release.questions, labels)
        put_line({"id": line_id, **answer})

    def _draw(self, release: LabelRelease) -> np.ndarray:
        """Reserve budget for a line's queries, and return their labels, [n].

        The label of a query that the budget was too small for is UNANSWERED. Order matters: budget
        is reserved first, then spent.json is written, and only then is anything drawn.
        """
        reserved_before = self.lots.reserved
        release.reserve()
        paid_now = self.lots.reserved > reserved_before
        # With a ledger, spent.json is written for the first lot only: the ledger's own entries show
        # what later lots spent, should the session be killed.
        has_no_ledger = not (self.lots.name or release.simulated)
        if paid_now and (not reserved_before or has_no_ledger):
            self.write_spent()
        return gathered(release.draw(), len(release.features))

    def write_spent(self) -> None:
        """Write spent.json: the budget paid so far, and the ledger entries that paid it."""
        claim = claim_of_labels(self.labelling.claim, self.lots.reserved, self.terms.delta)
        entry = self.lots.newest.entry
        if entry is not None:
            entry["entries"] = self.lots.entries
        about = Spending.of_claim(
            claim, self.lots.reserved, self.request.opened.dataset.name, entry
        )
        write_spent(self.request.record, subject_of(self.request.trained), about)

    def _features(self, rows: Sequence[dict[str, object]], where: str) -> np.ndarray:
        """Return the features of a line's queries as the model takes them, [n, ...].

        Args:
            rows: a mapping for each query: column -> value.
            where: a name of the line for messages, such as "line 3".

        Raises:
            DataError: the queries do not fit the model, or look like another population's (unless
                ``force`` or a simulation).
        """
        opened = self.request.opened
        records = self._source.read_queries(columns_of(rows, where))
        mismatches = records.population_mismatches
        if mismatches and not (self.request.force or self.terms.randomness.simulated):
            problems = "; ".join(mismatches)
            refusal = f"{where}: {problems}. No budget was spent for this query line"
            self.request.console.note(
                f"{refusal}. To answer query lines with such problems nevertheless, add force=true"
            )
            raise DataError(refusal)
        features: np.ndarray = records.features
        encoder = opened.stored.encoder
        if encoder is not None:
            features = encoder.apply(features)
        opened.model.check(features)
        return features

    def _answer(self, several: bool, questions: Questions, labels: np.ndarray) -> dict[str, Any]:
        """Count the answers to a line, and return the JSON entries of its answer.

        Args:
            several: True: the answer has lists, "labels" and "stored". False: it has one label,
                or, if that is missing, only the error.
            questions: the line's queries, and which were answered before.
            labels: [n] the labels that were drawn or stored; UNANSWERED where there is none.
        """
        counts = questions.counts(labels)
        self.counts.update(n_queries=len(labels), **counts)
        names = self._shown_answers(labels)
        stored = [key in questions.known for key in questions.keys]
        remaining = {"left": self.lots.remaining(self.labelling.claim.guarantee)}
        missing: dict[str, Any] = {}
        if counts["unanswered"]:
            unanswered = counts["unanswered"]
            query_count = len(labels)
            text = (
                f"{unanswered} of {query_count} queries were not answered, because "
                f"{self.exhausted_because}"
            )
            missing = {"error": text, "code": CheckError.exit_code}
        if several:
            return {"labels": names, "stored": stored, **missing, **remaining}
        if missing:
            return missing | remaining
        return {"label": names[0], "stored": stored[0], **remaining}

    def _shown_answers(self, labels: np.ndarray) -> list[Any]:
        """Return labels as they are printed: names of classes, numbers, or None if missing.

        Args:
            labels: [n] int64: the index of a class; or, if the model's members answer with numbers,
                the sum of their answers. UNANSWERED stands for a missing label, for which None is
                returned.
        """
        is_answered = labels != UNANSWERED
        answered = labels[is_answered]
        shown = np.full(len(labels), None, dtype=object)
        votes = self.request.opened.model.number_votes
        if votes is None:
            classes = self.request.opened.dataset.classes
            shown[is_answered] = [classes[label] for label in answered]
        else:
            shown[is_answered] = votes.mean_of(answered)
        return list(shown)

    def close(self) -> dict[str, Any]:
        """Finish the record of the session, with its claim, metrics and report.

        Returns:
            The object that --json prints.

        Raises:
            CheckError: queries were not answered, or the run was changed during the session. The
                record was finished before.
        """
        request = self.request
        record = request.record
        claim = self.claim
        reserved = self.lots.reserved
        record.conditions(request.opened.conditions)
        flags = {"proved": int(claim.publishable), "simulated": int(claim.simulated)}
        record.add_metrics(
            **dict(self.counts), reserved=reserved, **flags, **claim.guarantee.parameters
        )
        if reserved:
            self.write_spent()
        words = claim.lines()
        first = words[0]
        if self.lots.unreserved:
            unused = self.lots.unreserved
            words.append(
                f"labels that were paid for in advance (reserve={self.lots.size}) but never "
                f"requested: {unused}. Their cost is not refunded"
            )
            request.console.note(words[-1])
        shortfall = self._shortfall()
        if shortfall:
            words.append(shortfall)
        files = "The labels that were printed on standard output" if claim.publishable else None
        ReleasePage(claim.mechanism, words, files, claim if reserved else None).finish(request)
        result = {"metrics": record.metrics, "claim": first, "words": words}
        if shortfall:
            raise CheckError(shortfall, result)
        return result

    def _shortfall(self) -> str:
        """Return how many queries were not answered, and why the session ended before its input.

        Empty: all were answered, and the input ended.
        """
        problems = []
        unanswered = self.counts["unanswered"]
        if unanswered:
            answered = self.counts["answered"]
            query_count = self.counts["n_queries"]
            stored = self.counts["stored"]
            problems.append(
                f"{answered} of {query_count} queries were answered ({stored} of them with answers "
                f"that the ledger stores). {unanswered} were not answered, because "
                f"{self.exhausted_because}"
            )
        if self.over:
            problems.append(self.over)
        return "; ".join(problems)


def read_lines(
    stream: BinaryIO, longest: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number, content) of every line of a stream; numbers count from 1.

    No more than about ``longest`` bytes are held in memory at once.

    Args:
        stream: the bytes to read.
        longest: how many bytes a line may have; the content of a longer line is None.
    """
    number = 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest and not line.endswith(b"\n"):
            while (rest := stream.readline(longest)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        else:
            yield number, line


class OpenedLine(NamedTuple):
    """A line of queries, as it was sent.

    Attributes:
        line_id: its id: text, a number or None.
        entries: the other entries of the JSON object.
    """

    line_id: Any
    entries: dict[str, Any]


class LineQueries(NamedTuple):
    """The queries of a line.

    Attributes:
        rows: a mapping for each query: column -> value.
        answers_as_list: whether the answer is a list, even if there is one query.
    """

    rows: list[dict[str, object]]
    answers_as_list: bool


def open_line(line: bytes | None) -> OpenedLine:
    """Parse a line of queries.

    Args:
        line: the content of the line; None: the line is too long.

    Raises:
        ConfigError: the line is too long or not a JSON object, or its id has another type.
    """
    if line is None:
        raise ConfigError(
            f"a line of queries is longer than {MAX_LINE_BYTES} bytes: send fewer queries per line"
        )
    try:
        entries = parse_object(line, "a line")
    except Broken as error:
        raise ConfigError(
            f'{error}. Write one JSON object per line, for example {{"id": 1, "record": '
            '{"age": 37}}'
        ) from None
    line_id = entries.pop("id", None)
    has_allowed_type = isinstance(line_id, str | int | float | None)
    if isinstance(line_id, bool) or not has_allowed_type or HALF_CHARACTER.search(str(line_id)):
        raise ConfigError("the entry 'id' of a query line must be text, a number or null")
    return OpenedLine(line_id, entries)


def queries_of_line(node: Mapping[str, Any], array: str) -> LineQueries:
    """Return the queries of a line; those of the entry "records" are answered by a list.

    Args:
        node: the entries of the line, without its id.
        array: the name of the column for a query that is a list of numbers.

    Raises:
        ConfigError: the line does not have exactly one of ``ENTRIES``, or its value has another
            form.
    """
    given = [key for key in ENTRIES if key in node]
    unknown = [key for key in node if key not in ENTRIES]
    if unknown or len(given) != 1:
        entries = ", ".join(f"'{entry}'" for entry in ENTRIES)
        problem = "the query line contains no query"
        if given:
            problem = "the query line contains more than one query"
        if unknown:
            problem = f"unknown entry '{unknown[0]}'"
        raise ConfigError(
            f"{problem}: apart from 'id', a query line must have exactly one of the entries "
            f"{entries}"
        )
    entry = given[0]
    several = entry == "records"
    queries = node[entry] if several else [node[entry]]
    is_list = isinstance(queries, list) and bool(queries)
    if not is_list or not all(isinstance(query, dict | list) for query in queries):
        form = "a JSON object with a value for each column, or a list of values"
        if several:
            raise ConfigError(f"'{entry}' must be a list of queries, each of them {form}")
        raise ConfigError(f"'{entry}' must be {form}")
    rows = [query if isinstance(query, dict) else {array: query} for query in queries]
    return LineQueries(rows, answers_as_list=several)


def put_line(value: Mapping[str, Any]) -> None:
    """Print a value as one line of JSON on standard output, without buffering.

    Raises:
        ValueError: the value contains NaN or an infinite number.
    """
    write_line(json.dumps(value, allow_nan=False), "stdout")
