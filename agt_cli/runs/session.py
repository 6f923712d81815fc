"""agt predict inputs=-: questions as JSON lines on standard input, answered as they come, from a model that is loaded once.

Formal guarantees
    Nothing is certified but what ``Counter.take`` returned: debited before, with its line or in advance (``lot``), or,
    without a ledger, told by spent.json. How many are paid at once, when, and which are refused depends on lines, on what
    was answered before, and on the ledger's counter. What is left of a lot at the end stays spent.
"""

import sys
from collections import Counter as Numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from agt.data.memory import columns_of
from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger.questions import UNANSWERED, Asked, Asking
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.portable import CLAIM
from agt.mechanisms.release import Labelling, Release, totals_of
from agt.mechanisms.statement import Statement, of_release
from agt.randomness import Randomness
from agt_cli.report.release_md import predict_report
from agt_cli.runs.account import Receipt
from agt_cli.runs.counter import Counter
from agt_cli.runs.lines import Question, put_line, question_of, read_lines
from agt_cli.runs.publish import Request
from agt_cli.runs.spending import of_run, states_of, unfinished
from agt_cli.streams import muted

METRICS = ("lines", "bad_lines", "n_queries", "answered", "stored", "unanswered")


def serve(request: Request, randomness: Randomness, lot: int) -> dict[str, Any]:
    """Answer every line; returns the command's object.

    Raises:
        ConfigError: something that lines cannot ask for.
        CheckError: questions were not answered, as the budget held no more; the record is finished.
    """
    session, console, finished = Session.of(request, randomness, lot), request.console, request.opened.trained.finished
    if console.json:
        raise ConfigError("--json: standard output has one line for each answer: leave it out")
    for text in [] if randomness.simulated else unfinished(request.record, of_run(finished), states_of(finished)):
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
class Session:
    """Questions of one model, answered by one mechanism.

    Attributes:
        request: what is released; ``opened`` has no queries.
        labelling: how.
        randomness: of the draws.
        counter: what may be drawn.
        pending: entry -> what was drawn on it, to be remembered when it is used up.
        told: metrics.
        over: why nothing more is answered; empty: it goes on.
    """

    request: Request
    labelling: Labelling
    randomness: Randomness
    counter: Counter
    pending: dict[int, tuple[Receipt, dict[bytes, int]]] = field(default_factory=dict)
    told: Numbers[str] = field(default_factory=lambda: Numbers(dict.fromkeys(METRICS, 0)))
    over: str = ""

    @classmethod
    def of(cls, request: Request, randomness: Randomness, lot: int) -> "Session":
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
        request.check_payable(labelling.claim)
        return cls(request, labelling, randomness, Counter(request, labelling, randomness.simulated, lot, total.queries))

    @property
    def claim(self) -> Statement:
        """What is guaranteed of each answer."""
        claim, most, account = self.labelling.claim, self.counter.most, self.request.account
        totals = totals_of(claim.guarantee, most, self.request.delta) if most else ()
        noisy = self.request.opened.model.problem.settings.noise is not None
        release = Release(claim, lambda _: None, totals, most, noisy)
        simulated, name = self.randomness.simulated, self.labelling.mechanism.name
        words, counting = release.words(simulated, account.words("each answer is debited first")), self.request.counting
        counted = account.counted()
        return of_release(release, name, words=words, counting=counting, simulated=simulated, account=counted)

    def _final(self, claim: Statement) -> Statement:
        """What is known at the end: how many there were, which was not fixed before, so that no total is theirs."""
        size, receipt, today = self.counter.reserved, self.counter.receipt, datetime.now(UTC).date().isoformat()
        account = self.request.account.told(receipt).counted if receipt else None
        return replace(claim, releases=size, answers=size, totals=(), curve=None, issued=today, account=account)

    @cached_property
    def _asking(self) -> Asking:
        finished, request = self.request.opened.trained.finished, self.request
        return Asking(finished.digest, self.labelling.mechanism, request.accounting, request.counting)

    @cached_property
    def _source(self) -> Any:
        return self.request.opened.kept.source

    def hear(self, number: int, line: bytes | None) -> None:
        """Answer one line, if only by what is wrong with it."""
        self.told["lines"] += 1
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
            self.told["bad_lines"] += 1
            put_line({"id": getattr(error, "id", id), "error": str(error), "code": ConfigError.exit_code})
            return
        asked = self._asked(features)
        put_line({"id": id, **self._told(question, asked, self._labels(features, asked))})

    def _features(self, question: Question, where: str) -> np.ndarray:
        """[n, ...] as the head takes them."""
        encoder, records = self.request.opened.kept.encoder, self._source.read_queries(columns_of(question.rows, where))
        features: np.ndarray = records.features if encoder is None else encoder.apply(records.features)
        self.request.opened.model.check(features)
        return features

    def _asked(self, features: np.ndarray) -> Asked:
        asked = self.request.account.asked(self._asking, features)
        if asked is None:
            return Asked.each(len(features))
        drawn = {key: label for _, answers in self.pending.values() for key, label in answers.items()}
        return replace(asked, known={**asked.known, **{key: drawn[key] for key in asked.keys if key in drawn}})

    def _labels(self, features: np.ndarray, asked: Asked) -> np.ndarray:
        """[n] int64; ``UNANSWERED`` where nothing is left to pay with."""
        parts = self.counter.take(len(asked.new))
        rows, answers, start = asked.new[: sum(size for _, size in parts)], dict[bytes, int](), 0
        drawn = self.labelling.labels(features[rows], self.randomness) if len(rows) else rows
        for receipt, size in parts:
            keys = [asked.keys[row] for row in rows[start : start + size].tolist()]
            answers |= self._keep(receipt, dict(zip(keys, drawn[start : start + size].tolist(), strict=True)))
            start += size
        return asked.labels(answers)

    def _keep(self, receipt: Receipt, answers: dict[bytes, int]) -> Mapping[bytes, int]:
        """Remember what was drawn: in the ledger once its lot is used up, here until then."""
        if receipt.debit is None:
            return answers
        if receipt is self.counter.receipt and self.counter.left:
            self.pending.setdefault(receipt.debit.head.count, (receipt, {}))[1].update(answers)
            return answers
        _, before = self.pending.pop(receipt.debit.head.count, (receipt, {}))
        return self.request.account.keep(receipt, before | answers)

    def remember(self) -> None:
        """Put what was drawn on a lot that is not used up into the ledger."""
        while self.pending:
            _, (receipt, answers) = self.pending.popitem()
            self.request.account.keep(receipt, answers)

    def _told(self, question: Question, asked: Asked, labels: np.ndarray) -> dict[str, Any]:
        """What a line is answered."""
        classes, counts = self.request.opened.dataset.classes, asked.counts(labels)
        self.told.update(n_queries=len(labels), **counts)
        names = [None if label == UNANSWERED else classes[label] for label in labels.tolist()]
        stored, left = [key in asked.known for key in asked.keys], {"left": self.counter.remaining}
        missing: dict[str, Any] = {}
        if counts["unanswered"]:
            text = f"{counts['unanswered']} of {len(labels)} are not answered: {self.counter.why}"
            missing = {"error": text, "code": CheckError.exit_code}
        if question.several:
            return {"labels": names, "stored": stored, **missing, **left}
        return missing | left if missing else {"label": names[0], "stored": stored[0], **left}

    def finish(self) -> dict[str, Any]:
        """Write the record; returns the command's object.

        Raises:
            CheckError: questions were not answered, or the run was changed while it was asked.
        """
        record, opened, claim, simulated = self.request.record, self.request.opened, self.claim, self.randomness.simulated
        told, guarantee = dict(self.told), self.labelling.claim.guarantee
        record.conditions(opened.conditions)
        flags = {"proved": int(claim.publishable), "simulated": int(simulated)}
        record.add_metrics(**told, reserved=self.counter.reserved, **flags, **guarantee.parameters)
        words = [*claim.words, *self.counter.unused]
        if self.counter.reserved:
            self.counter.spend()
            record.write(CLAIM, self._final(claim).content)
        publishable = "The labels on standard output" if claim.publishable else None
        short = ""
        if told["unanswered"]:
            short = (
                f"answered {told['answered']} of {told['n_queries']} ({told['stored']} of them from stored answers); "
                f"{told['unanswered']} are not answered: {self.counter.why}"
            )
        short = "; ".join(filter(None, [short, self.over]))
        listed, name = [*words, *filter(None, [short])], self.labelling.mechanism.name
        record.report(predict_report(opened.dataset.name, opened.trained.words, name, listed, publishable, record))
        record.finish()
        for line in self.counter.unused:
            self.request.console.note(line)
        result = {"metrics": record.metrics, "claim": claim.words[0], "words": listed}
        if short:
            raise CheckError(short, result)
        return result
