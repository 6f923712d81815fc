"""agt predict of a file of queries: what it asks for is judged, paid for, drawn and written, in
this order.

Formal guarantees
    * What was drawn was debited before, and before anything private was computed about a query that
      it answers: the debit is on the disk when ``Release.reserve`` returns, and evidence is
      computed only in ``Release.draw`` and ``doubt_worth``.
    * spent.json is on the disk before the draw.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from agt import sentences
from agt.errors import CheckError, ConfigError
from agt.ledger.payer import LedgerPayer, Reservation
from agt.mechanisms.claims import Claim
from agt.release import AnyRelease, WeightsRelease, judge
from agt_cli.releasing.request import PredictRequest
from agt_cli.releasing.spent import Spending, spending, subject_of
from agt_cli.releasing.worth import doubt_worth
from agt_cli.releasing.writing import ReleasePage, ReleaseWriter, Written, writer_of
from agt_cli.runs.prepare import certification_progress


def release_file(request: PredictRequest) -> dict[str, Any]:
    """Release what a file of queries asks for: judge, pay, draw, write, print.

    Args:
        request: the request that agt predict received.

    Returns:
        The object that --json prints.

    Raises:
        CheckError: some of the queries were not paid for; the record is finished, and says what was
            answered. Or the run was changed meanwhile: what was drawn from its earlier state is
            spent, and nobody sees it.
        Exhausted: none was, and none was answered before; nothing was drawn.
        ConfigError: the claim is refused, the queries do not fit the model, or what is asked for
            would hardly be worth its budget.
    """
    features = request.opened.queries.features
    release = judge(request.opened.model, features, request.mechanism(len(features)), request.terms)
    writer = writer_of(request, release)
    earlier = request.earlier_attempts
    if request.config.reads_records:
        mechanism = request.config.kind.name
        request.console.note(
            f"note: mechanism={mechanism} publishes new weights, to which stable distances of agt "
            "certify do not apply"
        )
    _record_request(request, release, writer, earlier)
    request.opened.check_current()
    _check_worth(request, release)
    reservation = release.reserve()
    claim = release.reserved_claim
    # Whatever can fail has had its chance; from here on what was spent is on disk.
    with _spending(request, release, claim, reservation):
        if reservation.size and request.payer.name and not request.console.quiet:
            for line in doubt_worth(request, release, claim):
                request.console.note(line)
        label = "drawing weights" if isinstance(release, WeightsRelease) else "certifying"
        with certification_progress(request.opened.model, request.console, label) as on_progress:
            drawn = release.draw(on_progress)
            # again, as nothing drawn from an earlier state of the run may be seen
            request.opened.check_current()
            written = writer.write(drawn, claim)
        guarantee = claim.lines()
        lines = [*guarantee, *written.lines]
        if written.unanswered:
            lines = [written.unanswered, *guarantee]
        page = ReleasePage(
            mechanism=claim.mechanism,
            lines=[*lines, *earlier],
            files=writer.files if claim.publishable else None,
            claim=claim if reservation.size else None,
        )
        page.finish(request)
    return _print_release(request, claim, writer, written, earlier)


def _spending(
    request: PredictRequest, release: AnyRelease, claim: Claim, reservation: Reservation
) -> AbstractContextManager[None]:
    """Return a context that writes spent.json; one that does nothing if no budget was reserved.

    Args:
        request: the request that agt predict received.
        release: the release, after it was judged.
        claim: the guarantee of the release.
        reservation: the budget that was reserved.
    """
    if not reservation.size:
        return nullcontext()
    queries = len(request.rows_drawn(release))
    dataset = request.opened.dataset.name
    spent = Spending.of_claim(claim, queries, dataset, reservation.entry)
    return spending(request.record, subject_of(request.trained), spent)


def _record_request(
    request: PredictRequest, release: AnyRelease, writer: ReleaseWriter, earlier: list[str]
) -> None:
    """Record the release before anything is paid for, and print warnings.

    Args:
        request: the request that agt predict received; its record is changed.
        release: the release, after it was judged.
        writer: writes what will be drawn.
        earlier: warnings about earlier releases that did not finish.
    """
    for line in earlier:
        request.console.say(line)
    claim = release.claim
    request.record.conditions(release.conditions)
    flags = {"proved": int(claim.publishable), "simulated": int(claim.simulated)}
    request.record.add_metrics(**writer.metrics, **flags, **claim.guarantee.parameters)


def _check_worth(request: PredictRequest, release: AnyRelease) -> None:
    """Stop a release that would hardly be worth its budget, before any is spent.

    Raises:
        ConfigError: there is a reason not to release, and the owner did not give force=true.
    """
    console = request.console
    forced = request.force or release.simulated
    objections = [] if forced else _input_mismatches(request, release)
    if release.requested:
        # ``doubt_worth`` computes something private. With a ledger that is done after the debit.
        if not request.payer.name and not (forced and console.quiet):
            doubts = doubt_worth(request, release, release.requested_claim)
            if forced:
                for line in doubts:
                    console.note(line)
            else:
                objections += doubts
        for line in release.requested_claim.owner_warnings(request.opened.dataset.declared_size):
            console.note(line)
        if warning := request.payer.closing_warning(release.claim.guarantee, release.requested):
            console.warn(warning)
    if objections:
        reasons = "; ".join(objections)
        raise ConfigError(
            f"{reasons}. No budget was spent; to release nevertheless, add force=true"
        )


def _input_mismatches(request: PredictRequest, release: AnyRelease) -> list[str]:
    """Return sentences on how the queries do not fit the declared population, or the budget.

    They depend on public values only.
    """
    lines = list(request.opened.queries.population_mismatches)
    requested = release.requested
    remaining = request.payer.remaining(release.claim.guarantee, requested)
    if remaining and remaining < requested:
        population = request.payer.name
        lines.append(
            f"the remaining budget of the ledger of {population} covers only {remaining:,} of the "
            f"{requested:,} labels"
        )
    payer = request.payer
    if isinstance(payer, LedgerPayer):
        total = request.config.total
        budget = payer.ledger.population.allowance
        if total.eps is not None and total.delta > budget.delta > 0:
            lines.append(
                f"total.delta={total.delta:g} is larger than the delta of the ledger of "
                f"{payer.name}, {budget.delta:g}, with which the ledger counts a larger eps than "
                f"total.eps={total.eps:g} for this release: give total.delta={budget.delta:g}"
            )
    return lines


def _print_release(
    request: PredictRequest,
    claim: Claim,
    writer: ReleaseWriter,
    written: Written,
    earlier: list[str],
) -> dict[str, Any]:
    """Print the guarantee and the result of a release whose record is finished.

    Args:
        request: the request that agt predict received.
        claim: the guarantee as the record has it. The ledger is not read again, because it may be
            locked, or have new entries by now.
        writer: wrote what was drawn.
        written: the result of writing it.
        earlier: warnings about earlier releases that did not finish.

    Returns:
        The object that --json prints.

    Raises:
        CheckError: some of the queries were not paid for; it has the same object.
    """
    record = request.record
    console = request.console
    title = sentences.IN_BRIEF if claim.publishable else "not to be published:"
    console.items(title, claim.lines(brief=True))
    for line in written.lines:
        console.say(line)
    if writer.table:
        for line in writer.table.describe_record_id(request.opened.queries.id_column):
            console.note(line)
        console.say(f"labels: {record.folder / writer.table.file}")
    guarantee = claim.lines()
    result = {
        "metrics": record.metrics,
        "claim": guarantee[0],
        "words": [*guarantee, *earlier],
        **written.result,
    }
    if written.unanswered:
        console.say(f"digest: {record.digest}")
        raise CheckError(written.unanswered, {**result, "digest": record.digest})
    return result
