"""Judge earlier results of a run after an erasure: which answers are still valid, which are void.

A record of an earlier answer names, by digest, the state of the run that it was made from. Let D be
the records of that state, and E those of them that have been erased, or are to be, of m units; the
request log lists them as keyed hashes.

Formal guarantees
    - Certificates. An answer with a stable distance of at least m is valid: training without E
      gives the query the same label, if certificates of that state cover removals
      (agt.unlearning.sisa, by the conditions in the record itself). That is about E as a whole,
      in however many updates it was erased, and about the settings and seeds of the state that
      gave the answer. An answer that was given while requests were pending was given without their
      records; it is valid until further records are erased.
    - Private releases. A mechanism that is eps-DP per unit for the relation's neighbours has, on D
      and on D - E, output distributions within m eps, by a chain of m neighbours. (eps, delta)-DP
      gives delta (1 + e^eps + ... + e^((m-1) eps)), by P <= e^eps Q + delta applied m times. mu-GDP
      gives m mu (Dong, Roth and Su 2022, Theorem 2.14). So a release is valid, and what it revealed
      about E is bounded by that.
    - A release is void if nothing was proved, if it was drawn with a seed, if the bound for m units
      is beyond what any guarantee here may be (eps or mu above 100, delta from 1 on), or if the
      relation has no one-sided steps (substitute, paper_privacy), so that there is no chain.
    - What cannot be read, or is not finished, is void.
"""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyarrow import ArrowException

from agt.data.records import Records
from agt.errors import AgtError, ConfigError, first_line
from agt.mechanisms.claims import Claim, read_claim
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.output import Output
from agt.models.portable import CLAIM
from agt.relations import RELATIONS
from agt.store.manifest import MANIFEST_FILE
from agt.unlearning.sentences import Remark, Value
from agt.unlearning.sisa import reasons_not_covered
from agt_cli.report.finished import SPENT_FILE as SPENT, Run, manifest_digest
from agt_cli.report.found import runs_of_command
from agt_cli.report.opening import open_run
from agt_cli.report.recorded_conditions import conditions_of
from agt_cli.runs.erased import SAME_CONSTANTS
from agt_cli.runs.prepare import Prepared, RunSettings
from agt_cli.unlearn.account import Earlier
from agt_cli.unlearn.log import Log

COMMANDS = ("certify", "predict")
CERTIFICATES = "certificates.parquet"
BLOCK_ROWS = 2**16  # rows of certificates.parquet that are read at once
WEIGHTS_FOLDER = "release"  # of a release of weights: what may be handed on


@dataclass(frozen=True)
class Verdict:
    """What became of one earlier result.

    Attributes:
        standing: how many of its answers are still valid. A release of weights or of a number is
            one answer.
        void: how many answers are not valid any more.
        reasons: why; at least one, unless it has no answers.
        state: the digest of the run's state that it was made from; None: not recorded.
        weights: the sha256 of the list of the files of weights that it released; None: it released
            none.
    """

    standing: int
    void: int
    reasons: tuple[Remark, ...]
    state: str | None = None
    weights: str | None = None


def releases_of_state(digest: str, folders: Sequence[Path]) -> list[Path]:
    """Return the folders of releases that were made from one state of a run.

    Args:
        digest: the digest of that state.
        folders: output folders; releases are in their subfolders "predict".
    """
    return [
        release.folder
        for folder in folders
        for release in runs_of_command(folder / "predict", "predict")
        if (release.folder / SPENT).exists() and release.environment.get("trained_digest") == digest
    ]


@dataclass(frozen=True)
class UpdatedRun:
    """A run after an erasure, from whose earlier states results were made.

    Attributes:
        run: the run as it is after this update.
        log: its requests, with the entry of the present one.
        settings: its settings.
        prepared: its data, with the erased records that the data still has.
    """

    run: Run
    log: Log
    settings: RunSettings
    prepared: Prepared


def judge_earlier(updated: UpdatedRun, places: Sequence[Path]) -> tuple[Earlier, ...]:
    """Judge every certification and release below some folders of records that was made from an
    earlier state of a run, and every folder of labels that was made from such a release.

    Nothing in their folders is changed.

    Args:
        updated: the run after this update.
        places: the folders of records.

    Returns:
        One entry for each folder. A finished folder of which it cannot be read from which run it
        was made is among them, and is void.
    """
    results = [
        made
        for place, command in product(places, COMMANDS)
        for made in runs_of_command(place / command, command)
        if made.state == "done" or (made.folder / SPENT).exists()
    ]
    judged = list[Earlier]()
    releases = dict[str, Earlier]()  # digest of released weights -> what became of them
    for made in results:
        verdict = _judge(updated, made)
        if verdict is None or not (verdict.standing or verdict.void):
            continue
        name = f"{made.command}/{made.folder.name}"
        result = Earlier(name, verdict.standing, verdict.void, verdict.reasons, verdict.state)
        judged.append(result)
        if verdict.weights:
            releases[f"sha256:{verdict.weights}"] = result
    made_from_releases = [made for made in results if made.environment.get(WEIGHTS_FOLDER)]
    return (*judged, *_from_releases(made_from_releases, releases))


def _judge(updated: UpdatedRun, made: Run) -> Verdict | None:
    """Return what became of a certification or a release; None: of no earlier state of the run.

    Args:
        updated: the run after this update.
        made: the folder of the result, of which nothing was verified.
    """
    if not made.environment:
        return _unreadable("env.json cannot be read")
    state = str(made.environment.get("trained_digest", ""))
    removed = _units_removed_since(state, updated.log)
    if removed is None:
        return None
    weights = None
    try:
        record = open_run(made.folder, made.command)
        weights = record.manifest.files.get(f"{WEIGHTS_FOLDER}/{MANIFEST_FILE}")
        if made.command == "certify":
            verdict = _judge_certification(record, removed, _gaps_of(updated, record, state))
        else:
            verdict = _judge_release(record, removed.count)
    except (AgtError, ArrowException) as error:
        verdict = _unreadable(first_line(error))
    return replace(verdict, state=state, weights=weights)


def _gaps_of(updated: UpdatedRun, record: Run, state: str) -> list[Remark]:
    """Return why a certification does not cover what was removed since; empty: it does.

    Args:
        updated: the run after this update.
        record: the certification.
        state: the digest of the run's state that it was made from.
    """
    log = updated.log
    same_constants = state in updated.run.environment.get(SAME_CONSTANTS, ())
    count = len(log.erased | log.waiting)
    erased = updated.prepared.erased
    return removal_gaps(updated.settings, updated.prepared, erased, count, record, same_constants)


def _unreadable(error: str) -> Verdict:
    """Return the verdict on a record that cannot be read: its one answer is void."""
    return Verdict(0, 1, (Remark("record_not_whole", {"error": error}),))


@dataclass(frozen=True)
class UnitsRemoved:
    """The units that were erased, or are to be, since a state of a run.

    Attributes:
        count: how many there are.
        were_pending: whether all of them were already pending in that state, so that an answer
            from it took their removal into account.
    """

    count: int
    were_pending: bool


def _units_removed_since(state: str, log: Log) -> UnitsRemoved | None:
    """Return the units that were erased from a run, or are to be, since one of its states.

    Args:
        state: the digest of the state.
        log: the requests of the run.

    Returns:
        The units; None: no request was made in this state, so it is the present one, or another
        run's.
    """
    states = [entry.before for entry in log.entries]
    if state not in states:
        return None
    first = states.index(state)
    pending = Log(log.entries[:first]).waiting_units
    removed = pending.union(*(entry.units for entry in log.entries[first:]))
    return UnitsRemoved(len(removed), were_pending=removed == pending)


def _from_releases(
    made_from_releases: Sequence[Run], releases: Mapping[str, Earlier]
) -> Iterator[Earlier]:
    """Yield what became of labels that were computed from released weights.

    They are valid if the weights are. A folder is left out if its weights are not among the known
    releases, because then the release that it was made from is not known.

    Args:
        made_from_releases: the records of ``agt predict release=...``.
        releases: digest of weights that were released from the run -> what became of them.
    """
    for made in made_from_releases:
        digest = made.config.get("digest")
        digest = digest or manifest_digest(Path(str(made.environment[WEIGHTS_FOLDER])))
        release = releases.get(str(digest))
        if release is None:
            continue
        answers = made.metrics.get("n_queries", 1)
        count = 1
        if type(answers) is int and answers > 0:  # an unverified record may have anything
            count = answers
        standing = count if release.answers_standing else 0
        reason = Remark("made_from_release", {"given": count, "release": release.name})
        name = f"predict/{made.folder.name}"
        yield Earlier(name, standing, count - standing, (reason,), release.state)


def group_guarantee(guarantee: Guarantee, units: int) -> Guarantee | None:
    """Return the guarantee for a group of units that follows from one for a single unit.

    Args:
        guarantee: the guarantee for one unit.
        units: how many units the group has.

    Returns:
        A guarantee of the same kind, rounded up (group privacy; see the module). None: its
        parameters are beyond what a guarantee here may have.
    """
    try:
        if isinstance(guarantee, GaussianDP):
            return GaussianDP(math.nextafter(units * guarantee.mu, math.inf))
        eps = math.nextafter(units * guarantee.eps, math.inf)
        if isinstance(guarantee, PureDP):
            return PureDP(eps)
        delta = (
            guarantee.delta
            * math.fsum(math.exp(step * guarantee.eps) for step in range(units))
            * (1 + 1e-12)
        )
        return ApproximateDP(eps, delta)
    except (ConfigError, OverflowError):
        return None


def removal_gaps(
    settings: RunSettings,
    prepared: Prepared,
    erased: Records,
    count: int,
    record: Run,
    same_constants: bool,
) -> list[Remark]:
    """Return why certificates do not cover a removal of records; an empty list: they do.

    Args:
        settings: the settings of the run.
        prepared: the run's data without the removed records.
        erased: the removed records, as far as the data has them.
        count: how many records are removed.
        record: the run or the certification whose conditions count.
        same_constants: whether the constants of its data were compared with the present ones, and
            are the same.
    """
    compared = prepared.loaded.preprocessing.facts if same_constants else ()
    # Of records that the data lacks it is not known whether they were public.
    may_have_been_public = len(erased) < count and bool(prepared.dataset.train.public.any())
    removes_public = may_have_been_public or bool(erased.public.any())
    return reasons_not_covered(settings, conditions_of(record), compared, removes_public)


def _judge_certification(record: Run, removed: UnitsRemoved, reasons: list[Remark]) -> Verdict:
    """Return how many answers of a certification are still valid.

    Args:
        record: the certification.
        removed: the people who were removed since the state that it was made from.
        reasons: why its certificates do not cover the removal; empty: they do.
    """
    units = removed.count
    stable = 0
    given = 0
    file = pq.ParquetFile(io.BytesIO(record.read(CERTIFICATES)))
    if "stable_distance" not in file.schema_arrow.names:
        # Numbers move with the records; only their intervals hold, so no answer is the same.
        given = file.metadata.num_rows
        lost = {"lost": given, "given": given, "units": units}
        return Verdict(0, given, (Remark("answers_lost", lost),))
    for batch in file.iter_batches(BLOCK_ROWS, columns=["prediction", "stable_distance"]):
        answered = np.array(batch.column(0).to_pylist(), dtype=object) != ""
        given += int(answered.sum())
        is_stable = batch.column(1).to_numpy() >= units
        stable += int((answered & (is_stable | removed.were_pending)).sum())
    if reasons:
        return Verdict(0, given, (Remark("answers_not_covered", {"given": given}), *reasons))
    void = given - stable
    remarks = []
    if stable:
        counts = {"stable": stable, "given": given, "units": units}
        remarks.append(Remark("answers_stand", counts))
    if void:
        remarks.append(Remark("answers_lost", {"lost": void, "given": given, "units": units}))
    return Verdict(stable, void, tuple(remarks))


def _judge_release(record: Run, units: int) -> Verdict:
    """Return how many answers of a release are still valid: all, or none.

    Args:
        record: the release.
        units: how many people were removed since the state that it was made from.
    """
    if not record.holds(CLAIM):
        return Verdict(0, 1, (Remark("claim_missing" if record.holds(SPENT) else "nothing_new"),))
    claim = read_claim(record.read(CLAIM))
    about = group_guarantee(claim.guarantee, units)
    one_sided = RELATIONS[claim.relation.name].is_one_unit_added_or_removed
    if claim.publishable and one_sided and about is not None:
        remarks = _group_remarks(claim, about, units)
        if claim.output is Output.WEIGHTS:
            remarks = (*remarks, Remark("weights_stand"))
        return Verdict(claim.releases, 0, remarks)
    return Verdict(0, claim.releases, (_reason_void(claim, units),))


def _reason_void(claim: Claim, units: int) -> Remark:
    """Return why no answer of an earlier release remains valid after people were removed.

    Args:
        claim: the claim of the release.
        units: how many people were removed.
    """
    if not claim.publishable:
        return Remark("simulated" if claim.simulated else "not_proved")
    if not RELATIONS[claim.relation.name].is_one_unit_added_or_removed:
        return Remark("relation_two_sided", {"relation": claim.relation.name})
    return Remark("no_bound_for_group", {"mechanism": claim.mechanism, "units": units})


def _group_remarks(claim: Claim, about: Guarantee, units: int) -> tuple[Remark, ...]:
    """Return remarks with the guarantee for a group, of each release and of all together.

    Args:
        claim: the claim of the releases.
        about: the guarantee of each release for the group.
        units: how many units the group has.
    """
    values: dict[str, Value] = {
        "releases": claim.releases,
        "output": str(claim.output),
        "mechanism": claim.mechanism,
        "units": units,
    }
    remarks = [Remark(f"group_{about.kind}", {**values, **about.parameters})]
    for total in claim.totals[:1]:
        whole = None
        if 0 < total.eps <= 100:
            one_unit = ApproximateDP(total.eps, total.delta) if total.delta else PureDP(total.eps)
            whole = group_guarantee(one_unit, units)
        if whole is not None:
            remarks.append(Remark(f"all_{whole.kind}", whole.parameters))
    return tuple(remarks)
