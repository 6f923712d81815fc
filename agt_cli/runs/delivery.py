"""From a judged release to its record: paid first, told on disk what it spends, and only then anything private computed.

Formal guarantees
    What was drawn was debited before, and before anything private was computed about a query that it answers: the debit is
    on the disk when ``Account.pay`` returns, and evidence is computed in ``Release.draw`` (release.py) and ``forecast``
    alone. Which queries are answered where the budget ends depends on their order, on what was answered before and on the
    ledger's counter.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from agt.errors import CheckError
from agt.ledger.ledger import Exhausted
from agt.ledger.questions import UNANSWERED
from agt.mechanisms.portable import CLAIM
from agt.mechanisms.rigour import Output
from agt.mechanisms.statement import of_release
from agt.randomness import Randomness
from agt_cli.report.console import Console
from agt_cli.report.release_md import predict_report
from agt_cli.runs.account import Receipt
from agt_cli.runs.forecast import forecast
from agt_cli.runs.publish import Publication, Request, prepare_publication
from agt_cli.runs.spending import Spending, of_run, spending, states_of, unfinished

MOST = 5  # stretches of rows that a message names


def deliver(request: Request, randomness: Randomness) -> dict[str, Any]:
    """Judge, pay, draw, write the record, and say it; returns the command's object.

    Raises:
        CheckError: some of the queries were not paid for; the record is finished, and says what was answered. Or the run
            was changed meanwhile: what was drawn from its earlier state is spent, and nobody sees it.
        Exhausted: none was, and none was answered before; nothing was drawn.
    """
    record, console, simulated = request.record, request.console, randomness.simulated
    publication = prepare_publication(request)
    claim = publication.claim
    finished = request.opened.trained.finished
    earlier = [] if simulated else unfinished(record, of_run(finished), states_of(finished))
    for line in earlier:
        console.say(line)
    record.conditions(request.opened.conditions)
    flags = {"proved": int(claim.proved and not simulated), "simulated": int(simulated)}
    record.add_metrics(**publication.metrics, **flags, **claim.guarantee.parameters)
    request.opened.check_current()
    receipt = _paid(publication, request)
    lines, words, result, short = _drawn(request, publication, receipt, randomness, earlier)
    _say(lines, words, claim.proved and not simulated, console)
    if publication.table:
        console.say(f"labels: {record.folder / publication.table}")
    result = {"metrics": record.metrics, "claim": words[0], "words": [*words, *earlier], **result}
    if claim.output is Output.WEIGHTS and receipt.size:  # a later call can ask for exactly these
        console.say(f"digest: {record.digest}")
        result["digest"] = record.digest
    if short:
        raise CheckError(short, result)
    return result


def _drawn(
    request: Request, publication: Publication, receipt: Receipt, randomness: Randomness, earlier: Sequence[str]
) -> tuple[list[str], list[str], dict[str, Any], str]:
    """Draw what was paid and finish the record; (what was drawn in lines, its claim in lines, the command's object for it,
    what the budget did not hold)."""
    opened, record, simulated, claim = request.opened, request.record, randomness.simulated, publication.claim
    release, rows, subject = publication.prepare(receipt), publication.paid(receipt), of_run(opened.trained.finished)
    name, dataset, counting = publication.mechanism, opened.dataset.name, request.counting
    words, account = release.words(simulated, receipt.words), receipt.counted
    claimed = of_release(release, name, words=words, counting=counting, simulated=simulated, account=account)
    words = [*words, *filter(None, [publication.earlier])]
    about = Spending(claim.output, name, str(claim.guarantee), release.spent, len(rows), dataset, simulated, receipt.facts)
    # Whatever can fail has had its chance; from here on what was spent is on disk.
    with spending(record, subject, about) if receipt.size else nullcontext():
        for line in [] if request.console.quiet or not receipt.size else forecast(request, publication, release, rows):
            request.console.note(line)
        drawn = release.draw(randomness)
        request.opened.check_current()
        lines, result = publication.write(drawn, claimed)
        counted, short = _answered(publication, request, receipt, drawn)
        lines = [*lines, *counted]
        if receipt.size or publication.earlier:
            record.write(CLAIM, replace(claimed, issued=datetime.now(UTC).date().isoformat()).content)
        publishable = publication.files if claim.proved and not simulated else None
        listed = [*lines[: -1 if short else None], *filter(None, [short]), *words, *earlier]
        record.report(predict_report(dataset, opened.trained.words, name, listed, publishable, record))
        record.finish()
    return lines, words, result, short


def _say(lines: Sequence[str], words: Sequence[str], publishable: bool, console: Console) -> None:
    """The guarantee, what it rests on below it, and last what a person looks for."""
    console.say("what is guaranteed, to be published with the answers:" if publishable else "not to be published:")
    for line in words:
        console.say(f"  - {line}")
    for line in lines:
        console.say(line)


def _paid(publication: Publication, request: Request) -> Receipt:
    """As many as the budget holds; none where something was answered before, which costs nothing."""
    account, asked = request.account, publication.asked
    if not publication.wanted:
        return account.free
    try:
        return account.pay(request.charge(publication.claim, publication.mechanism), publication.wanted)
    except Exhausted as error:
        if asked is None:
            raise
        if not asked.known:
            raise Exhausted(f"none of {len(asked.keys)} is answered, and nothing was drawn: {error}") from None
        return account.free


def _answered(publication: Publication, request: Request, receipt: Receipt, drawn: Any) -> tuple[list[str], str]:
    """(how many are answered, in a line, where a ledger remembers answers; what the budget did not hold, exactly)."""
    if publication.asked is None:
        return [], ""
    (labels,) = drawn  # which a ledger's answers are in one piece
    counts = publication.asked.counts(labels)
    request.record.add_metrics(**counts)
    repeated = counts["answered"] - receipt.size
    line = f"answered {counts['answered']} of {len(labels)}: {receipt.size} drawn now, {repeated} repeated, which is free"
    if not counts["unanswered"]:
        return [line], ""
    return [line], (
        f"{line}; {counts['unanswered']} are not answered: {_rows(np.flatnonzero(labels == UNANSWERED))}; the budget of "
        f"{request.account.name} holds no more labels, each {publication.claim.guarantee}"
    )


def _rows(places: np.ndarray) -> str:
    """Indices of rows in words, counted from 1: rows 3, 7 to 9."""
    stretches = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    words = [f"{s[0] + 1}" if len(s) == 1 else f"{s[0] + 1} to {s[-1] + 1}" for s in stretches[:MOST]]
    more = sum(map(len, stretches[MOST:]))
    return f"{'row' if len(places) == 1 else 'rows'} {', '.join(words)}{f' and {more} more' if more else ''}"
