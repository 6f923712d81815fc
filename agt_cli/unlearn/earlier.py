"""Which earlier answers of a run still stand when records are erased from it, and which are void.

Formal guarantees
    A record of an earlier answer names, by digest, the state of the run that it was made from. Let D be that state's
    records, E those of them that are gone (or wait to go) by now, of m units; the log lists them as keyed hashes.
    Certificates. An answer of stable distance >= m stands: training without E gives the query the same label, if
    certificates of that state cover removals (agt.unlearning.sisa, by the conditions that the record itself has). It is
    about E as a whole, in however many updates it went, and about the settings and seeds of the state that gave it.
    What was answered while requests waited was answered without them; it stands as long as nothing more goes.
    Private releases. A mechanism that is eps-DP per unit for the relation's neighbours gives, on D and on D - E,
    distributions within m eps: a chain of m neighbours. (eps, delta) gives delta (1 + e^eps + ... + e^((m-1) eps)): by
    P <= e^eps Q + delta, applied m times. mu-GDP gives m mu (Dong, Roth and Su 2022, Theorem 2.14). So a release stands,
    and what it told about those who are gone is bounded by that; it is void as a proof where nothing was proved, where a
    seed drew it, or where the bound is beyond what any guarantee here may be (eps or mu above 100, delta from 1 on).
    A chain of m neighbours needs one-sided steps: substitute and paper_privacy have none among their neighbours, so nothing
    is said for them.
    What cannot be read, or is not finished, is void.
"""

import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyarrow import ArrowException

from agt.errors import AgtError, ConfigError, first_line
from agt.mechanisms.claims import Statement, read_claim
from agt.mechanisms.composition import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.portable import CLAIM
from agt.unlearning.account import Earlier
from agt.unlearning.log import Log
from agt.unlearning.sisa import gaps
from agt_cli.releasing.payer import SPENT_FILE as SPENT
from agt_cli.report.finished import Run, open_run, runs_of
from agt_cli.runs.erased import ALIKE, people
from agt_cli.runs.prepare import Prepared, RunSettings
from agt_cli.runs.queries import conditions_of

COMMANDS = ("certify", "predict")
CERTIFICATES = "certificates.parquet"
ONE_SIDED = ("add_remove", "remove")  # relations among whose neighbours is the data less one unit
_AT_ONCE = 2**16


@dataclass(frozen=True)
class ErasedSince:
    """What is erased of the records of an earlier state.

    Attributes:
        units: how many, those that waited when it answered included.
        more: of these, how many did not wait then.
    """

    units: int
    more: int

    @classmethod
    def since(cls, log: Log, state: str) -> "ErasedSince":
        """Of the state with this digest, which the log knows.

        Args:
            log: with the entry of the present request.
        """
        place = next(place for place, entry in enumerate(log.entries) if entry.before == state)
        waited = Log(log.entries[:place]).waiting_units
        after = frozenset().union(*(entry.units for entry in log.entries[place:]))
        return cls(len(waited | after), len(after - waited))


@dataclass(frozen=True)
class EarlierAnswers:
    """What becomes of the answers of one record.

    Attributes:
        name: of its folder, with the command's.
        state: the digest of the run that it was made from; None: not recorded.
        stand, void: how many answers; a release of weights or of a number is one.
        why_stand, why_void: in words; empty where there are none.
    """

    name: str
    state: str | None
    stand: int
    void: int
    why_stand: str = ""
    why_void: str = ""

    @property
    def earlier(self) -> tuple[Earlier, ...]:
        """For the account: an entry for those that stand, one for those that are void."""
        parts = ((True, self.stand, self.why_stand), (False, self.void, self.why_void))
        return tuple(Earlier(self.name, stands, why, self.state) for stands, count, why in parts if count)


def judge_earlier(
    run: Run, log: Log, settings: RunSettings, prepared: Prepared, places: Sequence[Path]
) -> tuple[EarlierAnswers, ...]:
    """Judge every certification and release below some folders of records that was made from an earlier state of a run.

    Nothing in their folders is changed.

    Args:
        run: as it is after this update.
        log: its requests.
        settings: the run's.
        prepared: its data, with the erased records that the data still has.
    """
    states, judge = {entry.before for entry in log.entries}, _AnswerJudge(run, log, settings, prepared)
    judged = []
    for place, command in product(places, COMMANDS):
        for record in runs_of(place / command, command):
            state = _state(record.folder)
            if state in states and (record.state == "done" or (record.folder / SPENT).exists()):
                judged.append(judge.of(command, record.folder, state))
    return tuple(judged)


def group(guarantee: Guarantee, units: int) -> Guarantee | None:
    """What a guarantee about one unit says about so many; None: nothing that is worth a name."""
    try:
        if isinstance(guarantee, GaussianDP):
            return GaussianDP(math.nextafter(units * guarantee.mu, math.inf))
        eps = math.nextafter(units * guarantee.eps, math.inf)
        if isinstance(guarantee, PureDP):
            return PureDP(eps)
        delta = guarantee.delta * math.fsum(math.exp(step * guarantee.eps) for step in range(units)) * (1 + 1e-12)
        return ApproximateDP(eps, delta)
    except (ConfigError, OverflowError):
        return None


@dataclass(frozen=True)
class _AnswerJudge:
    run: Run
    log: Log
    settings: RunSettings
    prepared: Prepared

    def of(self, command: str, folder: Path, state: str) -> EarlierAnswers:
        name, since = f"{command}/{folder.name}", ErasedSince.since(self.log, state)
        try:
            record = open_run(folder, command)
            return (self._certified if command == "certify" else self._released)(name, state, record, since)
        except (AgtError, ArrowException) as error:
            why = f"its record is not whole, so nothing can be said of it: {first_line(error)}"
            return EarlierAnswers(name, state, 0, 1, why_void=why)

    def _certified(self, name: str, state: str, record: Run, since: ErasedSince) -> EarlierAnswers:
        total = stable = given = 0
        for prediction, distance in _rows(record):
            answered = prediction != ""
            total, given = total + len(distance), given + int(answered.sum())
            stable += int((answered & ((distance >= since.units) | (since.more == 0))).sum())
        reasons = self._gaps(state, record)
        if reasons:
            return EarlierAnswers(name, state, 0, given, why_void=f"{given} answers: {'; '.join(reasons)}")
        many = people(since.units)
        kept = f"{stable} of {given} answers are what training without them gives: stable for {many} or more"
        lost = f"{given - stable} of {given} answers are stable for fewer than {many}"
        return EarlierAnswers(name, state, stable, given - stable, kept, lost)

    def _gaps(self, state: str, record: Run) -> list[str]:
        """Why certificates of that state do not cover removals; by its conditions, or by constants compared since."""
        prepared, erased = self.prepared, self.log.erased | self.log.waiting
        alike = state in self.run.environment.get(ALIKE, ())
        unseen = len(prepared.erased) < len(erased) and bool(prepared.dataset.train.public.any())
        compared = prepared.loaded.preprocessing.facts if alike else ()
        return gaps(self.settings, conditions_of(record), compared, unseen or bool(prepared.erased.public.any()))

    def _released(self, name: str, state: str, record: Run, since: ErasedSince) -> EarlierAnswers:
        claim = read_claim(record.read(CLAIM)) if record.holds(CLAIM) else None
        if claim is None:
            return EarlierAnswers(name, state, 0, 1, why_void="nothing new was released, or its claim was not kept")
        count = claim.releases
        if not claim.publishable:
            why = "drawn with a seed: a simulation" if claim.simulated else f"nothing is proved: {'; '.join(claim.reasons)}"
            return EarlierAnswers(name, state, 0, count, why_void=why)
        if claim.neighbours.relation not in ONE_SIDED:
            why = f"relation={claim.neighbours.relation} says nothing about a unit that is erased and no other come"
            return EarlierAnswers(name, state, 0, count, why_void=why)
        about = group(claim.guarantee.value, since.units)
        if about is None:
            why = f"what {claim.mechanism} guarantees for one unit bounds nothing for {people(since.units)}"
            return EarlierAnswers(name, state, 0, count, why_void=why)
        return EarlierAnswers(name, state, count, 0, _group_words(claim, about, since.units))


def _group_words(claim: Statement, about: Guarantee, units: int) -> str:
    each = f"each of {claim.releases} {claim.output}" if claim.output == "labels" else f"the {claim.output.split()[-1]}"
    total = next((_total(each.eps, each.delta, units) for each in claim.totals), "")
    return f"{each} ({claim.mechanism}): {about} for {people(units)} together, by group privacy{total}"


def _total(eps: float, delta: float, units: int) -> str:
    whole = group(PureDP(eps) if not delta else ApproximateDP(eps, delta), units) if 0 < eps <= 100 else None
    return f"; all of it {whole}" if whole else ""


def _state(folder: Path) -> str:
    """The digest of the run that a record was made from, as its env.json says before anything is verified; empty: none."""
    try:
        return str(json.loads((folder / "env.json").read_bytes()).get("trained_digest", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _rows(record: Run) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(prediction, stable distance) of each answer, in pieces."""
    file = pq.ParquetFile(io.BytesIO(record.read(CERTIFICATES)))
    for batch in file.iter_batches(_AT_ONCE, columns=["prediction", "stable_distance"]):
        yield np.array(batch.column(0).to_pylist(), dtype=object), batch.column(1).to_numpy()
