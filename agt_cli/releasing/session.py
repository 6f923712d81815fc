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
from typing import Any, BinaryIO

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
from agt_cli.process import muted, put
from agt_cli.releasing.request import PredictRequest
from agt_cli.releasing.spent import Spending, subject_of, write_spent
from agt_cli.releasing.writing import ReleasePage

METRICS = ("lines", "bad_lines", "n_queries", "answered", "stored", "unanswered")
MAX_LINE_BYTES = 2**24
ENTRIES = ("record", "records", "features")
OVER = "this session has ended and does not answer any more queries"
"""What an asker is told of a run that was changed: neither which run, nor why; stderr tells the
owner.
"""


def serve(request: PredictRequest, lot: int) -> dict[str, Any]:
    """Answer every line, and return what the command prints with --json.

    Args:
        request: with queries of no file.
        lot: how many questions are paid for at once, at least.

    Raises:
        ConfigError: something that lines cannot ask for.
        CheckError: questions were not answered, as the budget held no more; the record is finished.
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
    put_line({"claim": plain_of(session.claim.for_file())})
    try:
        for number, line in read_lines(sys.stdin.buffer):
            session.hear(number, line)
            if session.over or muted():
                break
    finally:
        session.lots.keep_rest()
    return session.close()


class Session:
    """Questions of one model, answered by one mechanism, line after line.

    Each line is a release of its own (``LabelRelease``), under a claim that was judged once, and
    paid for from lots.

    Attributes:
        labelling: the model and the mechanism.
        lots: what pays.
        counts: metrics.
        over: why nothing more is answered; empty: it goes on.
    """

    def __init__(self, request: PredictRequest, labelling: AnyLabelling, lots: LotPayer) -> None:
        self.request = request
        self.labelling = labelling
        self.lots = lots
        self.terms = replace(request.terms, payer=lots)
        self.counts = Counter(dict.fromkeys(METRICS, 0))
        self.over = ""
        self._source: Any = request.opened.kept.source

    @classmethod
    def opened(cls, request: PredictRequest, lot: int) -> "Session":
        """Judge the claim of the answers. Arguments and errors as of ``serve``."""
        total, opened, terms = request.config.total, request.opened, request.terms
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
        source = opened.kept.source
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
        """What is guaranteed of the answers that were paid for so far."""
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
        """Why nothing more may be drawn, in words."""
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
        """Answer one line, if only by what is wrong with it.

        Args:
            number: of the line, from 1.
            line: its content; None: it is too long.
        """
        self.counts["lines"] += 1
        line_id = None
        try:
            line_id, entries = opened_line(line)
            rows, several = rows_of(entries, getattr(self._source, "x", "x"))
            features = self._features(rows, f"line {number}")
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
        put_line({"id": line_id, **self._answer(several, release.questions, labels)})

    def _draw(self, release: LabelRelease) -> np.ndarray:
        """Return the labels of a line's queries, [n].

        Each is paid for, then spent.json says so, then it is drawn.
        """
        reserved_before = self.lots.reserved
        release.reserve()
        paid_now = self.lots.reserved > reserved_before
        # A ledger tells of the lots after the first one.
        has_no_ledger = not (self.lots.name or release.simulated)
        if paid_now and (not reserved_before or has_no_ledger):
            self.write_spent()
        return gathered(release.draw(), len(release.features))

    def write_spent(self) -> None:
        """Say on disk what was paid so far."""
        claim = claim_of_labels(self.labelling.claim, self.lots.reserved, self.terms.delta)
        entry = self.lots.newest.entry
        if entry is not None:
            entry["entries"] = self.lots.entries
        about = Spending.of_claim(
            claim, self.lots.reserved, self.request.opened.dataset.name, entry
        )
        write_spent(self.request.record, subject_of(self.request.trained), about)

    def _features(self, rows: Sequence[dict[str, object]], where: str) -> np.ndarray:
        """Return the features of a line's queries as the head takes them, [n, ...].

        Args:
            rows: column -> value of each query.
            where: which line, in words.

        Raises:
            DataError: they do not fit the model, or look like another population's.
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
        encoder = opened.kept.encoder
        if encoder is not None:
            features = encoder.apply(features)
        opened.model.check(features)
        return features

    def _answer(self, several: bool, questions: Questions, labels: np.ndarray) -> dict[str, Any]:
        """Return what a line is answered.

        Args:
            several: it is answered by lists.
            questions: its queries, and which were answered before.
            labels: [n] that were drawn or stored.
        """
        counts = questions.counts(labels)
        self.counts.update(n_queries=len(labels), **counts)
        names = self._names(labels)
        stored = [key in questions.known for key in questions.keys]
        left = {"left": self.lots.remaining(self.labelling.claim.guarantee)}
        missing: dict[str, Any] = {}
        if counts["unanswered"]:
            unanswered = counts["unanswered"]
            asked = len(labels)
            text = (
                f"{unanswered} of {asked} queries were not answered, because "
                f"{self.exhausted_because}"
            )
            missing = {"error": text, "code": CheckError.exit_code}
        if several:
            return {"labels": names, "stored": stored, **missing, **left}
        if missing:
            return missing | left
        return {"label": names[0], "stored": stored[0], **left}

    def _names(self, labels: np.ndarray) -> list[Any]:
        """Return the names of classes, or the numbers, that labels [n] stand for.

        None stands for a query that was not answered.
        """
        votes = self.request.opened.model.number_votes
        if votes is None:
            classes = self.request.opened.dataset.classes
            return [None if label == UNANSWERED else classes[label] for label in labels.tolist()]
        numbers = votes.mean_of(np.maximum(labels, 0)).tolist()
        answered = (labels != UNANSWERED).tolist()
        return [
            number if is_answered else None
            for number, is_answered in zip(numbers, answered, strict=True)
        ]

    def close(self) -> dict[str, Any]:
        """Write the record, and return what the command prints with --json.

        Raises:
            CheckError: questions were not answered, or the run was changed while it was asked.
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
        if self.lots.left:
            unused = self.lots.left
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
        """Return in words what was not answered and why the session ended early; empty: nothing."""
        problems = []
        left = self.counts["unanswered"]
        if left:
            answered = self.counts["answered"]
            asked = self.counts["n_queries"]
            stored = self.counts["stored"]
            problems.append(
                f"{answered} of {asked} queries were answered ({stored} of them with answers that "
                f"the ledger stores). {left} were not answered, because {self.exhausted_because}"
            )
        if self.over:
            problems.append(self.over)
        return "; ".join(problems)


def read_lines(
    stream: BinaryIO, longest: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, bytes | None]]:
    """Yield the number, from 1, and the content of every line.

    Args:
        stream: of bytes.
        longest: a line of more bytes is skipped, and None is yielded instead of its content.
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


def opened_line(line: bytes | None) -> tuple[Any, dict[str, Any]]:
    """Return the id of a line as it was sent (text, a number or null), and its other entries.

    Args:
        line: its content; None: it is too long.

    Raises:
        ConfigError: it is no object, or its id is something else.
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
    return line_id, entries


def rows_of(node: Mapping[str, Any], array: str) -> tuple[list[dict[str, object]], bool]:
    """Return the queries that a line asks about, and whether a list answers it.

    Args:
        node: the entries of the line, without its id.
        array: the column that a list of numbers is.

    Returns:
        Column -> value of each query; and True if it is answered by a list, even of one.

    Raises:
        ConfigError: nothing that can be answered.
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
    return [query if isinstance(query, dict) else {array: query} for query in queries], several


def put_line(value: Mapping[str, Any]) -> None:
    """Write one answer, at once."""
    put(json.dumps(value, allow_nan=False), "stdout")
