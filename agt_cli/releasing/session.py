"""agt predict inputs=-: questions as JSON lines on standard input, answered as they come, from a model that is loaded once.

{"id": "a17", "record": {"age": 37, "town": "Graz"}}     a record of a table, by column
{"id": 4, "features": [0.1, -2.5]}                        one of an array
{"id": "b", "records": [{...}, {...}]}                    several, paid as one lot; of arrays [[...], [...]]

Formal guarantees
    A line whose queries look like another population's (``agt.data.population.population_mismatches``) is refused before
    anything is paid, unless ``force``: by its own queries and public constants, whatever other lines held.
    Nothing is certified but what ``Lots.take`` returned: debited before, with its line or in advance (``lot``), or,
    without a ledger, told by spent.json. How many are paid at once, when, and which are refused depends on lines, on what
    was answered before, and on the ledger's counter. What is left of a lot at the end stays spent.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from agt.data.arrays import gathered
from agt.data.files import columns_of
from agt.data.records import UNANSWERED, DataError
from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger.chain import HALF_CHARACTER
from agt.ledger.ledger import Questions
from agt.mechanisms.claims import Claim
from agt.mechanisms.mechanism import Mechanism
from agt.numeric import Randomness
from agt.settings import plain_of
from agt.store import Broken, parse_object
from agt_cli.process import muted, put
from agt_cli.releasing.payer import subject_of, write_spent
from agt_cli.releasing.release import Lots, ReleaseRequest

METRICS = ("lines", "bad_lines", "n_queries", "answered", "stored", "unanswered")
MAX_LINE_BYTES = 2**24
ENTRIES = ("record", "records", "features")
OVER = "no more questions are answered here"
"""What an asker is told of a run that was changed: neither which run, nor why; stderr tells the owner."""


def serve(request: ReleaseRequest, randomness: Randomness, lot: int) -> dict[str, Any]:
    """Answer every line; returns the command's object.

    Raises:
        ConfigError: something that lines cannot ask for.
        CheckError: questions were not answered, as the budget held no more; the record is finished.
    """
    session, console = Session(request, randomness, lot), request.console
    if console.json:
        raise ConfigError("--json: standard output has one line for each answer: leave it out")
    for text in session.earlier_attempts():
        console.note(text)
    if sys.stdin.isatty():
        console.note('one question a line, such as {"id": 1, "record": {...}}; Ctrl-D ends')
    put_line({"claim": plain_of(session.claimed.written())})
    try:
        for number, line in read_lines(sys.stdin.buffer):
            session.hear(number, line)
            if session.over or muted():
                break
    finally:
        session.remember()
    return session.close()


class Session(Lots):
    """Questions of one model, answered by one mechanism, lot after lot: spent.json has each before it is drawn from.

    Attributes:
        lot: how many are paid at once, at least.
        most: how many in all; None: any number.
        entries: of the ledger, that lots were paid on.
        fitting: how many more the budget holds, as one lot; None: not known yet, or nobody counts.
        counts: metrics.
        over: why nothing more is answered; empty: it goes on.
    """

    def __init__(self, request: ReleaseRequest, randomness: Randomness, lot: int) -> None:
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
        super().__init__(request, mechanism, randomness)
        self.lot, self.most, self.over = lot, total.queries, ""
        self.fitting: int | None = None
        self.entries, self.counts = list[int](), Counter(dict.fromkeys(METRICS, 0))
        self._source: Any = opened.kept.source

    @property
    def claimed(self) -> Claim:
        """What is guaranteed of the answers that were paid for so far."""
        totals = self.claim_of(self.most or 0).totals
        claim = replace(self.claim, one_by_one=True, totals=totals, most=self.most)
        return self.stated(replace(claim, releases=self.reserved or 1, answers=self.reserved or None), one_by_one=True)

    def pay(self, wanted: int) -> bool:
        """Debit as many as the budget holds, a lot at least; False: it holds none, or ``most`` are paid for."""
        size, first, payer = max(wanted, self.lot), self.receipt is None, self.request.payer
        size = size if self.most is None else min(size, self.most - self.reserved)
        if size < 1:
            return False
        if not super().pay(size):
            self.fitting = 0
            return False
        self.entries += [self.receipt.debit.entry.number] if self.receipt and self.receipt.debit else []
        if first or not (payer.name or self.simulated):  # a ledger tells of the others
            self.write_spent()
        self.fitting = payer.left(self.claim.guarantee, *([] if self.fitting is None else [self.fitting]))
        return True

    def write_spent(self) -> None:
        """Say on disk what was paid so far."""
        about = self.spending(self.paid_claim, self.reserved)
        about = replace(about, ledger=about.ledger and {**about.ledger, "entries": self.entries})
        write_spent(self.request.record, subject_of(self.request.trained), about)

    @property
    def remaining(self) -> int | None:
        """How many more may be asked: of this lot, and as one more; None: any number."""
        if self.fitting is None:
            self.fitting = self.request.payer.left(self.claim.guarantee)
        parts = (self.fitting, None if self.most is None else self.most - self.reserved)
        more = [part for part in parts if part is not None]
        return self.left + min(more) if more else None

    @property
    def why(self) -> str:
        """Why nothing more may be drawn."""
        if self.most is not None and self.reserved >= self.most:
            return f"total.queries={self.most} are paid for"
        return f"the budget of {self.request.payer.name} holds no more labels, each {self.claim.guarantee}"

    def hear(self, number: int, line: bytes | None) -> None:
        """Answer one line, if only by what is wrong with it."""
        self.counts["lines"] += 1
        id = None
        try:
            id, node = opened_line(line)
            rows, several = rows_of(node, getattr(self._source, "x", "x"))
            features = self._features(rows, f"line {number}")
            self.request.opened.check_current()
        except CheckError as error:
            self.over = str(error)
            put_line({"id": id, "error": OVER, "code": error.exit_code})
            return
        except AgtError as error:
            self.counts["bad_lines"] += 1
            put_line({"id": id, "error": str(error), "code": ConfigError.exit_code})
            return
        questions = self.asked(features)
        labels = gathered(self.labels(features, questions), len(features))
        put_line({"id": id, **self._answer(several, questions, labels)})

    def _features(self, rows: Sequence[dict[str, object]], where: str) -> np.ndarray:
        """[n, ...] as the head takes them.

        Raises:
            DataError: they do not fit the model, or look like another population's.
        """
        opened, records = self.request.opened, self._source.read_queries(columns_of(rows, where))
        mismatches = records.population_mismatches
        if mismatches and not (self.request.force or self.simulated):
            refusal = f"{where}: {'; '.join(mismatches)}: nothing was spent"
            self.request.console.note(f"{refusal}; force=true answers such lines, too")
            raise DataError(refusal)
        encoder = opened.kept.encoder
        features: np.ndarray = records.features if encoder is None else encoder.apply(records.features)
        opened.model.check(features)
        return features

    def _answer(self, several: bool, questions: Questions, labels: np.ndarray) -> dict[str, Any]:
        """What a line is answered."""
        classes, counts = self.request.opened.dataset.classes, questions.counts(labels)
        self.counts.update(n_queries=len(labels), **counts)
        names = [None if label == UNANSWERED else classes[label] for label in labels.tolist()]
        stored, left = [key in questions.known for key in questions.keys], {"left": self.remaining}
        missing: dict[str, Any] = {}
        if counts["unanswered"]:
            text = f"{counts['unanswered']} of {len(labels)} are not answered: {self.why}"
            missing = {"error": text, "code": CheckError.exit_code}
        if several:
            return {"labels": names, "stored": stored, **missing, **left}
        return missing | left if missing else {"label": names[0], "stored": stored[0], **left}

    def close(self) -> dict[str, Any]:
        """Write the record; returns the command's object.

        Raises:
            CheckError: questions were not answered, or the run was changed while it was asked.
        """
        request, claim, counts, record = self.request, self.claimed, dict(self.counts), self.request.record
        record.conditions(request.opened.conditions)
        flags = {"proved": int(claim.publishable), "simulated": int(self.simulated)}
        record.add_metrics(**counts, reserved=self.reserved, **flags, **self.claim.guarantee.parameters)
        if self.receipt:
            self.write_spent()
        unanswered = (
            f"answered {counts['answered']} of {counts['n_queries']} ({counts['stored']} of them from stored answers); "
            f"{counts['unanswered']} are not answered: {self.why}"
        )
        short = "; ".join(filter(None, [unanswered if counts["unanswered"] else "", self.over]))
        words = claim.lines()
        first = words[0]
        if self.left:
            words.append(f"{self.left} labels were paid for (lot={self.lot}) and not asked for: they stay spent")
            request.console.note(words[-1])
        words += filter(None, [short])
        self.finish(claim if self.receipt else None, words, "The labels on standard output" if claim.publishable else None)
        result = {"metrics": record.metrics, "claim": first, "words": words}
        if short:
            raise CheckError(short, result)
        return result


def read_lines(stream: BinaryIO, longest: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes | None]]:
    """(number, content) of every line; None instead of more than ``longest`` bytes, which are skipped."""
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
    """(id, the other entries) of a line; the id as it was sent: text, a number or null.

    Raises:
        ConfigError: it is no object, or its id is something else.
    """
    if line is None:
        raise ConfigError(f"a line of more than {MAX_LINE_BYTES} bytes: ask in smaller batches")
    try:
        node = parse_object(line, "a line")
    except Broken as error:
        raise ConfigError(f'{error}; expected an object, such as {{"id": 1, "record": {{"age": 37}}}}') from None
    id = node.pop("id", None)
    if isinstance(id, bool) or not isinstance(id, str | int | float | None) or HALF_CHARACTER.search(str(id)):
        raise ConfigError("id: expected text, a number or null")
    return id, node


def rows_of(node: Mapping[str, Any], array: str) -> tuple[list[dict[str, object]], bool]:
    """(column -> value of each query that a line asks about, whether it is answered by a list, even if it is one).

    Args:
        array: the column that a list of numbers is.

    Raises:
        ConfigError: nothing that can be answered.
    """
    given = [key for key in ENTRIES if key in node]
    unknown = [key for key in node if key not in ENTRIES]
    if unknown or len(given) != 1:
        wrong = f"unknown entry '{unknown[0]}'" if unknown else "expected one of them"
        raise ConfigError(f"{wrong}: a line has id, and one of {', '.join(ENTRIES)}")
    several = given[0] == "records"
    value = node[given[0]] if several else [node[given[0]]]
    if not isinstance(value, list) or not value or not all(isinstance(row, dict | list) for row in value):
        raise ConfigError(f"{given[0]}: expected {'a list of them' if several else 'an object of columns, or a list'}")
    return [row if isinstance(row, dict) else {array: row} for row in value], several


def put_line(value: Mapping[str, Any]) -> None:
    """Write one answer, at once."""
    put(json.dumps(value, allow_nan=False), "stdout")
