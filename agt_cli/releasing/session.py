"""agt predict inputs=-: questions as JSON lines on standard input, answered as they come, from a model that is loaded once.

{"id": "a17", "record": {"age": 37, "town": "Graz"}}     a record of a table, by column
{"id": 4, "features": [0.1, -2.5]}                        one of an array
{"id": "b", "records": [{...}, {...}]}                    several, paid as one lot; of arrays [[...], [...]]

Formal guarantees
    Nothing is certified but what ``Lots.take`` returned: debited before, with its line or in advance (``lot``), or,
    without a ledger, told by spent.json. How many are paid at once, when, and which are refused depends on lines, on what
    was answered before, and on the ledger's counter. What is left of a lot at the end stays spent.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from json import JSONDecodeError
from typing import Any, BinaryIO

import numpy as np

from agt.data.files import columns_of
from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger.ledger import UNANSWERED, Exhausted, Questions
from agt.mechanisms.claims import Labelling, Release, Statement, of_release, totals_of
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.portable import CLAIM
from agt.numeric import Randomness
from agt_cli.process import muted, put
from agt_cli.releasing.payer import Receipt, subject_of, write_spent
from agt_cli.releasing.release import ReleaseRequest
from agt_cli.report.report_md import predict_report

METRICS = ("lines", "bad_lines", "n_queries", "answered", "stored", "unanswered")
MAX_LINE_BYTES = 2**24
ENTRIES = ("record", "records", "features")


def serve(request: ReleaseRequest, randomness: Randomness, lot: int) -> dict[str, Any]:
    """Answer every line; returns the command's object.

    Raises:
        ConfigError: something that lines cannot ask for.
        CheckError: questions were not answered, as the budget held no more; the record is finished.
    """
    session, console = Session.of(request, randomness, lot), request.console
    if console.json:
        raise ConfigError("--json: standard output has one line for each answer: leave it out")
    for text in request.earlier_attempts(randomness.simulated):
        console.note(text)
    if sys.stdin.isatty():
        console.note('one question a line, such as {"id": 1, "record": {...}}; Ctrl-D ends')
    put_line({"claim": session.claim.plain})
    try:
        for number, line in read_lines(sys.stdin.buffer):
            session.hear(number, line)
            if session.over or muted():
                break
    finally:
        session.remember()
    return session.finish()


@dataclass
class Lots:
    """How many questions may be drawn: paid lot by lot, drawn down question by question.

    Attributes:
        request: what is released.
        labelling: how.
        simulated: nothing counts.
        lot: how many are paid at once, at least.
        most: how many in all; None: any number.
        receipt, left: the present lot, and what is left of it.
        reserved: what was paid in all, on which entries.
        fitting: how many more the budget holds, as one lot; None: not known yet, or nobody counts.
    """

    request: ReleaseRequest
    labelling: Labelling
    simulated: bool
    lot: int
    most: int | None
    receipt: Receipt | None = None
    left: int = 0
    reserved: int = 0
    entries: list[int] = field(default_factory=list)
    fitting: int | None = None

    def take(self, wanted: int) -> list[tuple[Receipt, int]]:
        """As many of the questions that are wanted as may be drawn, with what paid for each stretch of them."""
        parts: list[tuple[Receipt, int]] = []
        while wanted and (self.left or self._reserve(wanted)) and self.receipt:
            size = min(wanted, self.left)
            self.left, wanted = self.left - size, wanted - size
            parts.append((self.receipt, size))
        return parts

    @property
    def remaining(self) -> int | None:
        """How many more may be asked: of this lot, and as one more; None: any number."""
        if self.fitting is None:
            self.fitting = self.request.payer.left(self.labelling.claim.guarantee)
        parts = (self.fitting, None if self.most is None else self.most - self.reserved)
        more = [part for part in parts if part is not None]
        return self.left + min(more) if more else None

    @property
    def why(self) -> str:
        """Why nothing more may be drawn."""
        if self.most is not None and self.reserved >= self.most:
            return f"total.queries={self.most} are paid for"
        return f"the budget of {self.request.payer.name} holds no more labels, each {self.labelling.claim.guarantee}"

    @property
    def unused(self) -> list[str]:
        """What is said of a lot that is not used up."""
        words = f"{self.left} labels were paid for (lot={self.lot}) and not asked for: they stay spent"
        return [words] if self.left else []

    def write_spent(self) -> None:
        """Say on disk what was paid so far."""
        request, claim, facts = self.request, self.labelling.claim, self.receipt and self.receipt.facts
        totals = totals_of(claim.guarantee, self.reserved, request.delta)
        release = Release(claim, _nothing, totals, self.reserved, noisy=False)
        facts = facts and {**facts, "entries": self.entries}
        spent = request.spending(release, self.labelling.mechanism.name, self.reserved, self.simulated, facts)
        write_spent(request.record, subject_of(request.opened.trained.finished), spent)

    def _reserve(self, wanted: int) -> bool:
        size = max(wanted, self.lot)
        size = size if self.most is None else min(size, self.most - self.reserved)
        if size < 1:
            return False
        first, payer, claim = self.receipt is None, self.request.payer, self.labelling.claim
        try:
            self.receipt = self.request.debit(claim, self.labelling.mechanism.name, size)
        except Exhausted:
            self.fitting = 0
            return False
        self.left, self.reserved = self.receipt.size, self.reserved + self.receipt.size
        self.entries += [self.receipt.debit.entry.number] if self.receipt.debit else []
        if first or not (payer.name or self.simulated):  # a ledger tells of the others
            self.write_spent()
        self.fitting = payer.left(claim.guarantee, *([] if self.fitting is None else [self.fitting]))
        return True


@dataclass
class Session:
    """Questions of one model, answered by one mechanism.

    Attributes:
        request: what is released; ``opened`` has no queries.
        labelling: how.
        randomness: of the draws.
        lots: what may be drawn.
        pending: entry -> what was drawn on it, to be remembered when it is used up.
        counts: metrics.
        over: why nothing more is answered; empty: it goes on.
    """

    request: ReleaseRequest
    labelling: Labelling
    randomness: Randomness
    lots: Lots
    pending: dict[int, tuple[Receipt, dict[Any, int]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(METRICS, 0)))
    over: str = ""

    @classmethod
    def of(cls, request: ReleaseRequest, randomness: Randomness, lot: int) -> "Session":
        """Judge what is to be released, and whether lines can ask for it."""
        total, opened = request.mechanism.total, request.opened
        if total.eps is not None and total.queries is None:
            raise ConfigError(
                "total.eps is shared out over questions, and nobody knows how many lines come: give total.queries, too, or "
                "mechanism.eps"
            )
        mechanism = request.mechanism.mechanism(opened.model.problem.classes, total.queries or 1)
        if not isinstance(mechanism, Mechanism):
            raise ConfigError(f"mechanism={request.mechanism.kind.name}: lines ask for labels: give a file of queries")
        if not hasattr(opened.kept.source, "read_queries"):
            raise ConfigError(
                f"inputs=-: {type(opened.kept.source).__name__} reads files of queries alone: give it read_queries(columns)"
            )
        labelling = request.labelling(mechanism)
        request.payer.check(labelling.claim, request.noisy)
        return cls(request, labelling, randomness, Lots(request, labelling, randomness.simulated, lot, total.queries))

    def __post_init__(self) -> None:
        self._source: Any = self.request.opened.kept.source

    @property
    def claim(self) -> Statement:
        """What is guaranteed of each answer."""
        claim, most, payer = self.labelling.claim, self.lots.most, self.request.payer
        totals = totals_of(claim.guarantee, most, self.request.delta) if most else ()
        release = Release(claim, _nothing, totals, most, self.request.noisy)
        simulated = self.randomness.simulated
        words = release.words(simulated, payer.words("each answer is debited first"))
        about: dict[str, Any] = {"counting": self.request.counting, "simulated": simulated, "account": payer.position()}
        return of_release(release, self.labelling.mechanism.name, words=words, **about)

    def hear(self, number: int, line: bytes | None) -> None:
        """Answer one line, if only by what is wrong with it."""
        self.counts["lines"] += 1
        id = None
        try:
            question = question_of(line, getattr(self._source, "x", "x"))
            id = question.id
            features = self._features(question, f"line {number}")
            self.request.opened.check_current()
        except CheckError as error:
            self.over = str(error)
            put_line({"id": id, "error": self.over, "code": error.exit_code})
            return
        except AgtError as error:
            self.counts["bad_lines"] += 1
            put_line({"id": getattr(error, "id", id), "error": str(error), "code": ConfigError.exit_code})
            return
        questions = self.request.questions(self.labelling.mechanism, features)
        drawn = {key: label for _, answers in self.pending.values() for key, label in answers.items()}
        known = {key: drawn[key] for key in questions.keys if key in drawn}
        questions = replace(questions, known={**questions.known, **known})
        put_line({"id": id, **self._answer(question, questions, self._labels(features, questions))})

    def _features(self, question: "Question", where: str) -> np.ndarray:
        """[n, ...] as the head takes them."""
        opened, records = self.request.opened, self._source.read_queries(columns_of(question.rows, where))
        encoder = opened.kept.encoder
        features: np.ndarray = records.features if encoder is None else encoder.apply(records.features)
        opened.model.check(features)
        return features

    def _labels(self, features: np.ndarray, questions: Questions) -> np.ndarray:
        """[n] int64; ``UNANSWERED`` where nothing is left to pay with."""
        parts = self.lots.take(len(questions.new))
        rows, answers, start = questions.new[: sum(size for _, size in parts)], dict[Any, int](), 0
        drawn = self.labelling.labels(features[rows], self.randomness) if len(rows) else np.empty(0)
        for receipt, size in parts:
            keys = [questions.keys[row] for row in rows[start : start + size]]
            answers |= self._keep(receipt, dict(zip(keys, drawn[start : start + size].tolist(), strict=True)))
            start += size
        return questions.labels(answers)

    def _keep(self, receipt: Receipt, answers: dict[Any, int]) -> Mapping[Any, int]:
        """Remember what was drawn: in the ledger once its lot is used up, here until then."""
        if receipt.debit is None:
            return answers
        entry = receipt.debit.entry.number
        if receipt is self.lots.receipt and self.lots.left:
            self.pending.setdefault(entry, (receipt, {}))[1].update(answers)
            return answers
        _, before = self.pending.pop(entry, (receipt, {}))
        return self.request.payer.keep(receipt.debit, before | answers)

    def remember(self) -> None:
        """Put what was drawn on a lot that is not used up into the ledger."""
        while self.pending:
            _, (receipt, answers) = self.pending.popitem()
            self.request.payer.keep(receipt.debit, answers)

    def _answer(self, question: "Question", questions: Questions, labels: np.ndarray) -> dict[str, Any]:
        """What a line is answered."""
        classes, counts = self.request.opened.dataset.classes, questions.counts(labels)
        self.counts.update(n_queries=len(labels), **counts)
        names = [None if label == UNANSWERED else classes[label] for label in labels.tolist()]
        stored, left = [key in questions.known for key in questions.keys], {"left": self.lots.remaining}
        missing: dict[str, Any] = {}
        if counts["unanswered"]:
            text = f"{counts['unanswered']} of {len(labels)} are not answered: {self.lots.why}"
            missing = {"error": text, "code": CheckError.exit_code}
        if question.several:
            return {"labels": names, "stored": stored, **missing, **left}
        return missing | left if missing else {"label": names[0], "stored": stored[0], **left}

    def finish(self) -> dict[str, Any]:
        """Write the record; returns the command's object.

        Raises:
            CheckError: questions were not answered, or the run was changed while it was asked.
        """
        request, claim, lots, counts = self.request, self.claim, self.lots, dict(self.counts)
        record, opened = request.record, request.opened
        record.conditions(opened.conditions)
        flags = {"proved": int(claim.publishable), "simulated": int(self.randomness.simulated)}
        guarantee = self.labelling.claim.guarantee
        record.add_metrics(**counts, reserved=lots.reserved, **flags, **guarantee.parameters)
        if lots.receipt:  # how many there would be was not fixed before: no total is theirs
            lots.write_spent()
            position, size = request.payer.described(lots.receipt).position, lots.reserved
            fixed: dict[str, Any] = {"releases": size, "answers": size, "totals": (), "curve": None}
            today = datetime.now(UTC).date().isoformat()
            record.write(CLAIM, replace(claim, **fixed, issued=today, account=position).content)
        short = ""
        if counts["unanswered"]:
            short = (
                f"answered {counts['answered']} of {counts['n_queries']} ({counts['stored']} of them from stored answers); "
                f"{counts['unanswered']} are not answered: {lots.why}"
            )
        short = "; ".join(filter(None, [short, self.over]))
        words = [*claim.words, *lots.unused, *filter(None, [short])]
        publishable = "The labels on standard output" if claim.publishable else None
        name = self.labelling.mechanism.name
        record.report(predict_report(opened.dataset.name, opened.trained.words, name, words, publishable, record))
        record.finish()
        for line in lots.unused:
            request.console.note(line)
        result = {"metrics": record.metrics, "claim": claim.words[0], "words": words}
        if short:
            raise CheckError(short, result)
        return result


def _nothing(_: object) -> None:
    raise RuntimeError("a session draws question by question")


class BadLine(ConfigError):
    """A line that asks nothing.

    Attributes:
        id: of the question, where it has one.
    """

    def __init__(self, message: str, id: object = None) -> None:
        super().__init__(message)
        self.id = id


@dataclass(frozen=True)
class Question:
    """What one line asks.

    Attributes:
        id: as it was sent: text, a number or null.
        rows: column -> value, of each query.
        several: answered by a list, even if it is one.
    """

    id: object
    rows: Sequence[dict[str, object]]
    several: bool


def read_lines(stream: BinaryIO, longest: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes | None]]:
    """(number, content) of every line that is not blank; None instead of more than ``longest`` bytes, which are skipped."""
    number = 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest and not line.endswith(b"\n"):
            while (rest := stream.readline(longest)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif line.strip():
            yield number, line


def question_of(line: bytes | None, array: str) -> Question:
    """What a line asks.

    Args:
        array: the column that a list of numbers is.

    Raises:
        BadLine: nothing that can be answered.
    """
    if line is None:
        raise BadLine(f"a line of more than {MAX_LINE_BYTES} bytes: ask in smaller batches")
    try:
        node = json.loads(line.decode(), parse_constant=_refused, object_pairs_hook=_without_repeats)
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8: byte {error.start + 1}") from None
    except JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise BadLine(f"cannot be read: {error}") from None
    if not isinstance(node, dict):
        raise BadLine('expected an object, such as {"id": 1, "record": {"age": 37}}')
    id = node.get("id")
    if not isinstance(id, str | int | float | None):
        raise BadLine("id: expected text, a number or null")
    given = [key for key in ENTRIES if key in node]
    unknown = [key for key in node if key not in (*ENTRIES, "id")]
    if unknown or len(given) != 1:
        wrong = f"unknown entry '{unknown[0]}'" if unknown else "expected one of them"
        raise BadLine(f"{wrong}: a line has id, and one of {', '.join(ENTRIES)}", id)
    several = given[0] == "records"
    value = node[given[0]] if several else [node[given[0]]]
    if not isinstance(value, list) or not value or not all(isinstance(row, dict | list) for row in value):
        raise BadLine(f"{given[0]}: expected {'a list of them' if several else 'an object of columns, or a list'}", id)
    return Question(id, [row if isinstance(row, dict) else {array: row} for row in value], several)


def put_line(value: Mapping[str, Any]) -> None:
    """Write one answer, at once."""
    put(json.dumps(value), "stdout")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    node = dict(pairs)
    if len(node) < len(pairs):
        raise ValueError(f"an object has '{next(key for key in node if [k for k, _ in pairs].count(key) > 1)}' twice")
    return node


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")
