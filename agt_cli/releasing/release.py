"""agt predict of a file: questions, pay, draw, write, in this order.

What the data owner is told before the draw (that labels would hardly be better than a constant) depends on private data
in ways that no guarantee covers: it goes to the terminal (stderr) and into no file.

Formal guarantees
    What was drawn was debited before, and before anything private was computed about a query that it answers: the debit is
    on the disk when ``Payer.debit`` returns, and evidence is computed in ``draw`` and ``doubt_worth`` alone. Which
    queries are answered where the budget ends depends on their order, on what was answered before and on the ledger's
    counter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np

from agt.certificates.conditions import weaker
from agt.data.arrays import gathered, pieces, selected
from agt.data.records import UNANSWERED, Records
from agt.errors import CheckError, ConfigError, first_line
from agt.ledger.book import Charge
from agt.ledger.ledger import Exhausted, Questions, question_terms
from agt.mechanisms.claims import (
    Account,
    Accounting,
    Claim,
    Counting,
    Labelling,
    OnProgress,
    Release,
    Statement,
    labels_from,
    of_release,
    prepare_quantile,
    prepare_weights,
    totals_of,
)
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.mechanism_config import MechanismConfig
from agt.mechanisms.output import Output
from agt.mechanisms.planning import Evidence
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights_mechanism import ReleasedWeights, WeightsMechanism
from agt.models.model import Model
from agt.models.portable import CLAIM, Portable, check_printable
from agt.numeric import Randomness
from agt_cli.releasing.answers import LabelTable
from agt_cli.releasing.ledgers import ProtectedPeople
from agt_cli.releasing.payer import Payer, Receipt, Spending, spending, subject_of, unfinished
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.quality import LEAST as FEW_RECORDS, Judged, Quality, rate_words, right_rate
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import in_brief, predict_report
from agt_cli.runs.prepare import certifying
from agt_cli.runs.queries import OpenedRun
from agt_cli.team import unshared

MAX_STRETCHES_SHOWN = 5  # of rows, in a message


@dataclass(frozen=True)
class ReleaseRequest:
    """What is to be released, of which nothing is judged.

    Attributes:
        mechanism: with its budget.
        accounting, counting: as in ``prepare_labels``.
        opened: the run, and the queries.
        payer: what pays.
        record: where it is written.
        console: for progress.
    """

    mechanism: MechanismConfig
    accounting: Accounting
    counting: Counting
    opened: OpenedRun
    payer: Payer
    record: RunRecord
    console: Console
    force: bool = False

    @property
    def trained(self) -> Run:
        """What answers."""
        return self.opened.trained.finished

    @property
    def noisy(self) -> bool:
        """Whether the model was trained with noise."""
        return self.opened.model.problem.settings.noise is not None

    def charge(self, claim: Claim, mechanism: str) -> Charge:
        """What a ledger counts of each release."""
        people = ProtectedPeople.of_finished(self.trained)
        return people.charge(claim.guarantee, claim.output.value, mechanism, self.trained.digest)


@dataclass
class Planned:
    """A release that was judged from public values: nothing private was computed, nothing paid. A file is paid as one lot.

    Attributes:
        request: what was asked for.
        judged: what may be said of it.
        mechanism: its name.
        randomness: of the draws.
        receipt, left: the present lot, and what is left of it.
        reserved: how many releases were paid in all.
        refusal: why the last payment was refused; None: none was.
        metrics: what is known before the draw.
        wanted: how many releases of a file have to be paid for; 0: nothing new is drawn.
        files: what may be published, in words.
        table: the labels, whose room on the disk is taken; None: there are none.
        questions: the queries by question, where a ledger remembers answers.
        short: what the budget did not hold, exactly; empty: it held all.
    """

    request: ReleaseRequest
    judged: Release[Any]
    mechanism: str
    randomness: Randomness
    receipt: Receipt | None = None
    left: int = 0
    reserved: int = 0
    refusal: Exhausted | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    wanted: int = 1
    files: str = ""
    table: "LabelTable | None" = None
    questions: Questions | None = None
    short: str = ""

    @property
    def claim(self) -> Claim:
        """What may be said of each release."""
        return self.judged.claim

    @property
    def simulated(self) -> bool:
        """Nothing counts."""
        return self.randomness.simulated

    @property
    def rows(self) -> np.ndarray | range:
        """The queries that something is to be drawn for; once it is paid, for which it was."""
        return range(len(self.request.opened.queries))

    @property
    def asked_for(self) -> Release[Any]:
        """All that is asked for, with its totals."""
        return self.judged

    def release(self) -> Release[Any]:
        """What was paid, with its totals."""
        return self.judged

    def draw(self) -> Any:
        """Draw what was paid."""
        return self.judged.draw(self.randomness)

    def expected_accuracy(self, model: Model, evidence: Evidence, features: np.ndarray) -> float:
        """Return the expected accuracy of what is released, on queries whose labels are known.

        Args:
            model: as of one process, where several share the release.
            evidence: of these queries, with their labels.
            features: [n, ...] of the same queries.
        """
        raise NotImplementedError

    def pay(self, wanted: int) -> bool:
        """Debit as many as the budget holds; False: it holds none."""
        try:
            self.receipt = self.request.payer.debit(self.request.charge(self.claim, self.mechanism), wanted)
        except Exhausted as error:
            self.refusal = error
            return False
        self.left, self.reserved = self.receipt.size, self.reserved + self.receipt.size
        return True

    def pay_file(self) -> Receipt:
        """Debit as many as the budget holds; none where something was answered before, which costs nothing."""
        if self.wanted and not self.pay(self.wanted) and self.refusal:
            if self.questions is None:
                raise self.refusal
            if not self.questions.known:
                raise Exhausted(f"none of {len(self.questions.keys)} is answered, and nothing was drawn: {self.refusal}")
        return self.receipt or Receipt(0)

    def spending(self, release: Release[Any], queries: int) -> Spending:
        """What spent.json says."""
        name, each = self.request.opened.dataset.name, str(self.claim.guarantee)
        facts = self.receipt.facts if self.receipt else None
        return Spending(self.claim.output, self.mechanism, each, release.spent, queries, name, self.simulated, facts)

    def earlier_attempts(self) -> list[str]:
        """What is said of earlier releases from this run that did not end as done, a line each."""
        trained = self.request.trained
        before = trained.environment.get("succeeds", ())
        return [] if self.simulated else unfinished(self.request.record, subject_of(trained), before)

    def statement(self, release: Release[Any], words: list[str], position: Account | None) -> Statement:
        """The claim for programs. Args: words: all of it for people, the claim first; position: of the ledger with it."""
        about: dict[str, Any] = {"counting": self.request.counting, "simulated": self.simulated, "account": position}
        return of_release(release, self.mechanism, words=words, **about)

    def finish(self, claim: Statement | None, lines: Sequence[str], files: str | None) -> None:
        """Finish the record. Args: claim: of what was drawn, if anything was; files: what may be published, in words."""
        record, opened = self.request.record, self.request.opened
        if claim is not None:
            record.write(CLAIM, replace(claim, issued=datetime.now(UTC).date().isoformat()).content)
        record.report(predict_report(opened.dataset.name, opened.trained.words, self.mechanism, lines, files, record))
        record.finish()

    def reserve_table(self) -> None:
        """Take the room on the disk for the labels."""
        opened, record = self.request.opened, self.request.record
        self.table = LabelTable.of(opened.queries, opened.dataset.classes, opened.trained.inputs)
        self._open_table = record.reserve(self.table.file, self.table.size)
        self.files = f"`{self.table.file}`"

    def write_labels(self, labels: Iterable[np.ndarray]) -> dict[str, Any]:
        """Write labels, which come in pieces: what is drawn for each is drawn then. Unanswered queries are left out.

        The file appears when all of them are in it, if the run is still in the state that was asked.
        """
        assert self.table is not None
        with self._open_table() as file:
            shown = self.table.write(file, labels)
            self.request.opened.check_current()
        return {"labels": str(self.request.record.folder / self.table.file) if shown is None else shown}


def _nothing(_: object) -> None:
    raise RuntimeError("labels are drawn question by question")


class Lots(Planned):
    """Labels of questions, a file of them or line after line: repeated where a ledger remembers them, else paid and drawn.

    Attributes:
        labelling: how.
        pending: entry -> what was drawn on it, to be remembered when it is used up.
    """

    def __init__(self, request: ReleaseRequest, mechanism: Mechanism, randomness: Randomness) -> None:
        opened = request.opened
        self.labelling = Labelling.of(opened.model, mechanism, opened.conditions, request.accounting, request.counting)
        self.pending: dict[int, tuple[Receipt, dict[Any, int]]] = {}
        super().__init__(request, Release(self.labelling.claim, _nothing, (), None, False), mechanism.name, randomness)
        request.payer.check(self.claim, request.noisy)

    def release(self) -> Release[Any]:
        """The labels that were paid so far, with their totals."""
        size = self.reserved
        totals = totals_of(self.claim.guarantee, size, self.request.mechanism.total.delta) if size else ()
        return replace(self.judged, totals=totals, queries=size or None, noisy=bool(size) and self.request.noisy)

    def expected_accuracy(self, model: Model, evidence: Evidence, features: np.ndarray) -> float:
        guarantee = self.claim.guarantee
        return evidence.expected(MECHANISMS[self.mechanism].of(guarantee, evidence.classes))

    def asked(self, features: np.ndarray) -> Questions:
        """Which queries [n, ...] the payer knows the answers of, and which are new."""
        request = self.request
        about = question_terms(request.trained.digest, self.labelling.mechanism, request.accounting, request.counting)
        questions = request.payer.questions(about, features)
        drawn = {key: label for _, answers in self.pending.values() for key, label in answers.items()}
        known = {key: drawn[key] for key in questions.keys if key in drawn}
        return replace(questions, known={**questions.known, **known}) if known else questions

    def take(self, wanted: int) -> list[tuple[Receipt, int]]:
        """As many of those that are wanted as may be drawn, with what paid for each stretch of them."""
        parts: list[tuple[Receipt, int]] = []
        while wanted and (self.left or self.pay(wanted)) and self.receipt:
            size = min(wanted, self.left)
            self.left, wanted = self.left - size, wanted - size
            parts.append((self.receipt, size))
        return parts

    def labels(
        self, features: np.ndarray, questions: Questions, on_progress: OnProgress = lambda progress: None
    ) -> Iterable[np.ndarray]:
        """The labels of all queries, in pieces, each drawn when it is asked for unless somebody remembers what is drawn.

        ``UNANSWERED`` where nothing is left to pay with.
        """
        parts = self.take(len(questions.new))
        rows = questions.new[: sum(size for _, size in parts)]
        pieces_drawn = self.labelling.drawn(selected(features, rows), self.randomness, on_progress) if len(rows) else []
        if isinstance(questions.keys, range) and len(rows) == len(features):
            return pieces_drawn
        drawn = gathered(pieces_drawn, len(rows)).tolist() if len(rows) else []
        answers, new = dict[Any, int](), zip((questions.keys[row] for row in rows), drawn, strict=True)
        for receipt, size in parts:
            answers |= self._keep(receipt, dict(islice(new, size)))
        return [questions.labels(answers)]

    def _keep(self, receipt: Receipt, answers: dict[Any, int]) -> Mapping[Any, int]:
        """Remember what was drawn: in the ledger once its lot is used up, here until then."""
        if receipt.debit is None:
            return answers
        entry = receipt.debit.entry.number
        if receipt is self.receipt and self.left:
            self.pending.setdefault(entry, (receipt, {}))[1].update(answers)
            return answers
        _, before = self.pending.pop(entry, (receipt, {}))
        return self.request.payer.keep(receipt.debit, before | answers)

    def remember(self) -> None:
        """Put what was drawn on a lot that is not used up into the ledger."""
        while self.pending:
            _, (receipt, answers) = self.pending.popitem()
            self.request.payer.keep(receipt.debit, answers)


class PlannedLabels(Lots):
    """One label for each query of a file."""

    def __init__(self, request: ReleaseRequest, mechanism: Mechanism, randomness: Randomness) -> None:
        super().__init__(request, mechanism, randomness)
        features = request.opened.queries.features
        request.opened.model.check(features)
        self._asked = self.asked(features)
        self.questions = self._asked if request.payer.name else None
        self.wanted = len(self._asked.new)
        _ = self.asked_for  # refuses a total before anything is paid
        self.reserve_table()

    @property
    def rows(self) -> np.ndarray | range:
        return self._asked.new[: self.reserved if self.receipt or self.refusal else None]

    @property
    def asked_for(self) -> Release[Any]:
        if not self.wanted:
            return self.judged
        totals = totals_of(self.claim.guarantee, self.wanted, self.request.mechanism.total.delta)
        return replace(self.judged, totals=totals, queries=self.wanted)

    def pay(self, wanted: int) -> bool:
        """Debit one lot, and no more."""
        return not (self.receipt or self.refusal) and super().pay(wanted)

    def draw(self) -> Iterable[np.ndarray]:
        drawn = self._drawn()
        return drawn if self.questions is None else list(drawn)

    def _drawn(self) -> Iterator[np.ndarray]:
        opened = self.request.opened
        with certifying(opened.model, self.request.console) as on_progress:
            yield from self.labels(opened.queries.features, self._asked, on_progress)

    def write(self, drawn: Any, claim: Statement) -> tuple[list[str], dict[str, Any]]:
        """Write them, and count what is answered where a ledger remembers answers."""
        result = self.write_labels(drawn)
        if self.questions is None:
            return [], result
        (labels,) = drawn  # which a ledger's answers are in one piece
        counts = self.questions.counts(labels)
        self.request.record.add_metrics(**counts)
        answered, unanswered = counts["answered"], counts["unanswered"]
        repeated = f"{answered - self.reserved} repeated, which is free"
        line = f"answered {answered} of {len(labels)}: {self.reserved} drawn now, {repeated}"
        if unanswered:
            self.short = (
                f"{line}; {unanswered} are not answered: {_rows_in_words(np.flatnonzero(labels == UNANSWERED))}; the "
                f"budget of {self.request.payer.name} holds no more labels, each {self.claim.guarantee}"
            )
        return [line], result


class PlannedNumber(Planned):
    """One number about all queries: up to which distance a fraction of them is certified."""

    def __init__(self, request: ReleaseRequest, mechanism: CertifiedQuantile, randomness: Randomness) -> None:
        opened = request.opened
        release = prepare_quantile(
            opened.model, opened.queries.features, mechanism,
            conditions=opened.conditions, accounting=request.accounting, counting=request.counting,
            on_progress=lambda progress: self._on_progress(progress),
        )  # fmt: skip
        super().__init__(request, release, mechanism.name, randomness, files="That number")
        self.metrics = {"fraction": mechanism.fraction}

    def draw(self) -> int:
        with certifying(self.request.opened.model, self.request.console) as self._on_progress:
            return super().draw()

    def write(self, drawn: Any, claim: Statement) -> tuple[list[str], dict[str, Any]]:
        self.request.record.add_metrics(certified_quantile=drawn)
        line = f"{self.metrics['fraction']:g} of the queries are certified up to a distance of about {drawn}"
        return [line], {"certified_quantile": drawn}


class PlannedWeights(Planned):
    """Weights that are released, and the labels that they give."""

    def __init__(self, request: ReleaseRequest, mechanism: WeightsMechanism, randomness: Randomness) -> None:
        delta, opened = request.mechanism.total.delta, request.opened
        rests_on = weaker(mechanism.head_of(opened.model).conditions, opened.conditions)
        request = replace(request, opened=replace(opened, conditions=rests_on))
        labels_from(opened.model, opened.queries.features)  # refuses queries that the head does not take
        release = prepare_weights(opened.model, mechanism, conditions=rests_on, delta=delta)
        super().__init__(request, release, mechanism.name, randomness)
        self.weights_mechanism = mechanism
        self.reserve_table()
        self.files += ", `released_weights.safetensors` and the folder `release`"

    def expected_accuracy(self, model: Model, evidence: Evidence, features: np.ndarray) -> float:
        head = self.weights_mechanism.head_of(model)
        return self.weights_mechanism.expected_accuracy(head, features, evidence.labels)

    def write(self, drawn: Any, claim: Statement) -> tuple[list[str], dict[str, Any]]:
        opened = self.request.opened
        source = None if opened.kept.encoder is not None else opened.kept.settled
        lines, result = write_weights(opened.model, drawn, source, claim, self.request.record)
        answers = (labels_from(opened.model, piece)(drawn) for piece in pieces(opened.queries.features))
        return lines, {**result, **self.write_labels(answers)}


def plan_release(request: ReleaseRequest, randomness: Randomness) -> PlannedLabels | PlannedNumber | PlannedWeights:
    """Judge the claim, look up what was answered before, and take the room on the disk for what will be drawn.

    Raises:
        ConfigError: the claim is refused, or queries do not fit the model; or nothing is proved, and a ledger would pay.
    """
    config, opened = request.mechanism, request.opened
    planned: PlannedNumber | PlannedWeights
    mechanism = config.mechanism(opened.model.problem.classes, len(opened.queries))
    if isinstance(mechanism, Mechanism):
        return PlannedLabels(request, mechanism, randomness)
    if isinstance(mechanism, CertifiedQuantile):
        planned = PlannedNumber(request, mechanism, randomness)
    else:
        planned = PlannedWeights(request, mechanism, randomness)
        check_printable(opened.model.problem.dataset, planned.judged.words())
    request.payer.check(planned.claim, request.noisy)
    return planned


def release_file(request: ReleaseRequest, randomness: Randomness) -> dict[str, Any]:
    """Release what a file of queries asks for, and say it; returns the command's object.

    Raises:
        CheckError: some of the queries were not paid for; the record is finished, and says what was answered. Or the run
            was changed meanwhile: what was drawn from its earlier state is spent, and nobody sees it.
        Exhausted: none was, and none was answered before; nothing was drawn.
    """
    record, console, simulated = request.record, request.console, randomness.simulated
    planned = plan_release(request, randomness)
    publishable = planned.claim.proved and not simulated
    earlier = planned.earlier_attempts()
    for line in earlier:
        console.say(line)
    record.conditions(planned.request.opened.conditions)
    flags = {"proved": int(publishable), "simulated": int(simulated)}
    known = planned.metrics or {"n_queries": len(request.opened.queries)}
    record.add_metrics(**known, **flags, **planned.claim.guarantee.parameters)
    request.opened.check_current()
    _check_worth(request, planned, willing=request.force or simulated)
    receipt = planned.pay_file()
    release = planned.release()
    words = release.words(simulated, request.payer.words(receipt))
    claimed = planned.statement(release, words, request.payer.position(receipt))
    about = planned.spending(release, len(planned.rows))
    # Whatever can fail has had its chance; from here on what was spent is on disk.
    with spending(record, subject_of(request.trained), about) if receipt.size else nullcontext():
        if receipt.size and request.payer.name and not console.quiet:
            for line in doubt_worth(request, planned, release):
                console.note(line)
        drawn = planned.draw()
        request.opened.check_current()
        lines, result = planned.write(drawn, claimed)
        listed = [planned.short, *words, *earlier] if planned.short else [*words, *lines, *earlier]
        claim = claimed if receipt.size else None
        planned.finish(claim, listed, planned.files if publishable else None)
    console.say("what is guaranteed, in brief:" if publishable else "not to be published:")
    for line in [*(f"  - {line}" for line in in_brief(words)), *lines]:
        console.say(line)
    if planned.table:
        for line in planned.table.naming:
            console.note(line)
        console.say(f"labels: {record.folder / planned.table.file}")
    result = {"metrics": record.metrics, "claim": words[0], "words": [*words, *earlier], **result}
    if planned.short:
        console.say(f"digest: {record.digest}")
        raise CheckError(planned.short, {**result, "digest": record.digest})
    return result


def _rows_in_words(places: np.ndarray) -> str:
    """Indices of rows in words, counted from 1: rows 3, 7 to 9."""
    stretches = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    shown = stretches[:MAX_STRETCHES_SHOWN]
    words = [f"{s[0] + 1}" if len(s) == 1 else f"{s[0] + 1} to {s[-1] + 1}" for s in shown]
    more = sum(map(len, stretches[MAX_STRETCHES_SHOWN:]))
    return f"{'row' if len(places) == 1 else 'rows'} {', '.join(words)}{f' and {more} more' if more else ''}"


def write_weights(
    model: Model, released: ReleasedWeights, source: Mapping[str, Any] | None, claim: Statement, record: RunRecord
) -> tuple[list[str], dict[str, Any]]:
    """Write released weights, and the folder that answers without this run
    (agt/models/portable.py), where there can be one.

    Args:
        source: the settled configuration of the dataset (``prepare.settled``); None: queries pass an encoder.
        claim: of the release.
    """
    record.released_weights(released.weight, {**released.described, "simulated": released.simulated})
    if released.simulated:
        return ["no folder release: a simulation is none"], {}
    if source is None or (head := model.release_head) is None:
        return ["no folder release: queries pass an encoder, which is in the training run alone"], {}
    digest = Portable.of(head, released, source, claim.words).save(record.part("release"), claim.content)
    folder = record.folder / "release"
    said = f"release: {folder} (digest {digest}): it may be published, and answers without this run"
    return [said], {"release": str(folder), "release_digest": digest}


# -- whether labels are worth their budget, which the owner alone is told --------------------------------------------------

MAX_RECORDS_LINEAR, MAX_RECORDS = 10_000, 1_000  # that an estimate looks at: certificates of other models take time
LOT = 0.2  # of the way from labels drawn by lot to the model's own: what is less right is not drawn unasked
Rows = np.ndarray | range


def _check_worth(request: ReleaseRequest, planned: Planned, willing: bool) -> None:
    """Stop what would hardly be worth its budget before that is spent (ConfigError), unless the owner is willing."""
    console, objections = request.console, [] if willing else _misfits(request, planned)
    if planned.wanted:
        # a ledger is debited before anything private is computed, and by whoever asks
        if not request.payer.name and not (willing and console.quiet):
            doubts = doubt_worth(request, planned, planned.asked_for)
            if willing:
                for line in doubts:
                    console.note(line)
            else:
                objections += doubts
        for line in planned.asked_for.doubts(request.opened.dataset.declared_size):
            console.note(line)
    if objections and not willing:
        raise ConfigError(f"{'; '.join(objections)}: nothing was spent; force=true releases all the same")


def doubt_worth(request: ReleaseRequest, planned: Planned, release: Release[Any]) -> list[str]:
    """Return why labels would hardly be worth their budget; warns the owner alone where a constant is as good.

    What goes wrong with the estimate is one of the warnings: it is not worth stopping for. This process works it
    out by itself where several share the release: one that failed in the middle of an exchange would leave the
    others no way back to it.
    """
    warnings, objections = list[str](), list[str]()
    if release.claim.output is not Output.NUMBER and release.claim.proved and len(planned.rows):
        try:
            warnings, objections = _estimate_worth(request, planned)
        except Exception as error:
            warnings = [f"whether these labels are worth their budget could not be estimated ({first_line(error)})"]
    for line in warnings:
        request.console.note(line)
    return objections


def _misfits(request: ReleaseRequest, planned: Planned) -> list[str]:
    """What of a file fits neither the budget nor what is declared, in words: from public values."""
    left = request.payer.left(planned.claim.guarantee, planned.wanted)
    lines = request.opened.queries.population_mismatches
    if left and left < planned.wanted:
        lines.append(f"the budget of {request.payer.name} holds {left:,} of {planned.wanted:,} labels")
    return lines


def _estimate_worth(request: ReleaseRequest, planned: Planned) -> tuple[list[str], list[str]]:
    """Return (warnings for the owner alone, why labels would hardly be worth their budget, if so)."""
    opened = request.opened
    model, classes = unshared(opened.model), opened.model.problem.classes
    records, labels, words = _sample(opened, planned.rows)
    certificates = model.certify(records.features)
    if labels is not None and len(labels) < FEW_RECORDS:
        labels = None  # they show too little of what one answer to all would reach
    known = certificates.prediction if labels is None else labels
    evidence = Evidence.of(certificates, known, classes, request.counting)
    share = planned.expected_accuracy(model, evidence, records.features)
    if labels is None:  # what training recorded of the test records stands for the queries' own labels
        metrics = opened.trained.finished.metrics
        truth, verdict = metrics.get("test_accuracy", 1.0), metrics.get("test_verdict")
        always = metrics.get("test_majority_rate", 0.0) if metrics.get("n_test", 0) >= FEW_RECORDS else 0.0
    else:
        truth, always = 1.0, evidence.majority
        verdict = Quality.of(Judged(opened.dataset.classes, words, labels, evidence.prediction)).verdict
    expected, accuracy, lot = (right_rate(rate, truth, classes) for rate in (share, evidence.accuracy, 1 / classes))
    warnings, objections = [str(verdict)] if verdict else [], list[str]()
    if expected <= always:
        warnings.append("one answer to all would do at least as well as these labels")
    if expected <= always or expected - lot < LOT * (accuracy - lot):
        objections = [
            f"labels would be right at {'an estimated' if labels is None else 'a'} rate of {rate_words(expected)}, of "
            f"{rate_words(accuracy)} without noise, {rate_words(always or None)} of one answer to all and "
            f"{rate_words(lot)} of labels drawn by lot"
        ]
    if warnings or objections:
        warnings.append("(for you alone: this depends on private data, and so does a choice made by it)")
    return warnings, objections


def _sample(opened: OpenedRun, rows: Rows) -> tuple[Records, np.ndarray | None, str]:
    """(some of these queries, their labels if they are known, what they are in words)."""
    records, labels, words = opened.queries, opened.labels, opened.trained.words
    most = MAX_RECORDS_LINEAR if opened.model.linear_head is not None else MAX_RECORDS
    if len(records) == len(rows) <= most:
        return records, labels, words
    which = f"{len(rows):,} new ones among" if len(rows) <= most else f"sample of {most:,} of"
    most = min(most, len(rows))
    some = np.array([rows[place] for place in np.linspace(0, len(rows) - 1, most).astype(np.int64)])
    return records.take(some), None if labels is None else labels[some], f"{which} the {words}"
