"""agt audit certificate: neighbours of a user's own run are trained, and its certificates are held against them."""

import json
import math
from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.certificate import Auditor, Extent, audit_certificates
from agt.audit.findings import Finding, Outcome, Strength, counterexamples
from agt.errors import ConfigError
from agt.relations import RELATIONS
from agt.settings import schema
from agt_cli.audit.job import Audited, AuditInputs
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun

Count = Annotated[int, Field(ge=0)]
CODE_KEYS = ("agt", "revision")  # of env.json
GRAINS = {"float64": 1e-6, "float32": 2e-3}
"""Dtype -> how far ends of boxes may be from those of training again on another processor, in widths of a box."""
MAX_REFUSALS_SHOWN = 3


@schema
class Certificate:
    """How hard it tries (``agt.audit.certificate.Extent``): see conf/audit/certificate.yaml."""

    name: ClassVar[str] = "certificate"
    units: Count | None = 200
    neighbours: Count = 100
    farthest: Annotated[int, Field(ge=1, le=10_000)] = 3
    bounded: Count = 4
    queries: Count = 200
    lines: Count = 8
    seconds: Annotated[float, Field(gt=0)] | None = None
    again: bool = True

    def check(self, given: AuditInputs) -> None:
        """It needs a run, and asks test records: queries that were brought along come without the training data."""
        if given.run is None:
            raise ConfigError("run: give the folder of the agt train run whose certificates are to be audited")
        if given.config.get("inputs") is not None:
            raise ConfigError(
                f"inputs={given.config['inputs']}: a certificate audit asks the run's test records and queries that it "
                "bisects between them: leave it out"
            )

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Open the run with its data, attack, and say what was found.

        Raises:
            ConfigError: its data is gone or changed; or the run drew noise that nobody kept.
        """
        trained = TrainedRun.of(given.config)
        opened = trained.open(record, console)
        model, noise = opened.model, opened.model.problem.settings.noise
        if noise is not None and noise.seed is None:
            raise ConfigError(
                "noise.seed=null: the run added noise that was drawn for it alone and not kept, so that no neighbour can "
                "be trained with the same: audit a run of the same settings with noise.seed"
            )
        if self.farthest > max(model.farthest, 1):
            console.note(f"audit.farthest={self.farthest} is beyond the run's grid of k, {model.farthest}")
        extent = Extent(
            self.units, self.neighbours, self.farthest, self.bounded, self.queries, self.lines, self.seconds, self.again
        )
        with console.progress("certificate audit", "neighbour") as report:
            auditor = audit_certificates(
                model, extent, given.seed, lambda stage, done, of: report(done, of, done, of)
            )  # fmt: skip
        conditions = tuple(
            f"condition {c.letter} ({c.name}): {c.standing}: {c.why.removeprefix(f'{c.standing}: ')}"
            for c in opened.conditions
        )
        tally, finished = auditor.tally, trained.finished
        return Audited(
            finished.folder.name, finished.digest, findings(auditor, _other_code(finished, record)),
            (*notes(auditor), *conditions), tables(auditor),
            metrics={"neighbours": tally.trained, "deviation": tally.share, "pairs": tally.pairs},
        )  # fmt: skip


def _other_code(run: Run, record: RunRecord) -> str:
    """Why training may give other numbers than the run's, rounding aside; empty: it may not."""
    now, then = json.loads((record.folder / "env.json").read_bytes()), run.environment
    other = [f"{key} was {then.get(key)}, is {now.get(key)}" for key in CODE_KEYS if then.get(key) != now.get(key)]
    return f"the run was made by another agt ({'; '.join(other)})" if other else ""


def findings(auditor: Auditor, other_code: str = "") -> tuple[Finding, ...]:
    """One for each claim.

    Args:
        other_code: why this machine may train to other bits than the run's; empty: it trains to the same.
    """
    return (*_again(auditor, other_code), _contained(auditor), *_labels(auditor), *_pairs(auditor))


def _subject(auditor: Auditor) -> str:
    kind, members = (
        f"certificate={auditor.certificate}, relation={auditor.relation}",
        auditor.problem.settings.ensemble.members,
    )
    return kind if members == 1 else f"{kind}, {members} members"


def _effort(auditor: Auditor) -> str:
    """What was made, and what was not."""
    tally, train = auditor.tally, auditor.problem.dataset.train
    there = len(np.unique(train.units[~train.public]))
    refused, edited = sum(each.refused for each in tally.kinds.values()), tally.trained - tally.units
    farthest = max((k for (_, k), each in tally.kinds.items() if each.trained), default=0)
    out = f"{tally.units:,} of {there:,} units left out, one at a time"
    hurt = f"{edited:,} neighbours edited to hurt, up to k = {farthest}" if edited else "no neighbour edited to hurt"
    cut = "; audit.seconds ended the search" if auditor.cut else ""
    return f"{out}; {hurt}{f'; {refused:,} more refused by training' if refused else ''}{cut}"


def _again(auditor: Auditor, other_code: str) -> Iterator[Finding]:
    tally, grain = auditor.tally, GRAINS[auditor.problem.settings.training.dtype]
    if tally.bits is None:
        return
    differ, outcome = f"{tally.differ} of {tally.bits} numbers", Outcome.REPORTED
    if not tally.differ:
        meaning, outcome = f"all {tally.bits} numbers are those of the run, bit for bit", Outcome.STANDS
    elif tally.idle > 1 or (tally.drift > grain and not other_code):
        meaning, outcome = f"{differ} are not what training gives: the record was changed", Outcome.VIOLATED
    else:
        reason = other_code or (
            "another processor or number of threads would explain it; if env.json of both names the same, nothing does"
        )
        meaning = f"{differ} differ, parameters within what rounding is allowed: {reason}"
    on_record = {"box": "parameters and boxes", "tube": "weights and radii"}.get(auditor.certificate, "weights")
    yield Finding(
        subject=f"{on_record} on record",
        claim="they are what the run's settings and records make",
        attack="trained again on the same records, with the same bounds",
        effort=f"{tally.bits} numbers compared",
        outcome=outcome,
        meaning=meaning,
        measure="numbers that differ",
        claimed=0.0,
        found=float(tally.differ),
        strength=Strength.CERTAIN,
        noticeable="parameters beyond what rounding is allowed" if other_code else "any change beyond rounding",
    )


def _contained(auditor: Auditor) -> Finding:
    tally, relation = auditor.tally, auditor.problem.settings.relation
    bound = {"box": "the box of k", "tube": "the radius of k"}.get(auditor.certificate, "k times the recorded sensitivity")
    meaning = f"the farthest neighbour went {share_words(tally.share)}"
    if tally.outside:
        meaning = f"a neighbour went {share_words(tally.share)}: {tally.outside[0]}"
    elif not tally.trained:
        meaning = "no neighbour was trained (audit.units, audit.neighbours, audit.seconds)"
    elif not tally.groups:
        meaning = "every neighbour was farther away than the run's bounds reach: none was kept"
    return counterexamples(
        f"parameters: {_subject(auditor)}",
        f"with {RELATIONS[relation.name].ball_of(relation.unit_rows)}, training stays within {bound}",
        "neighbours trained by the run's own constants: units left out, and edits made to hurt",
        _effort(auditor), "deviation/bound", tally.share if tally.groups else None, meaning, _narrowing(auditor), 1.0,
    )  # fmt: skip


def share_words(share: float) -> str:
    """How far of the way to its bound a neighbour went: only the bound itself is 100 %, whatever is left or beyond."""
    apart = abs(1 - share)
    if share >= 2:
        return f"{share:.3g} times as far as its bound"
    if 0 < apart < 0.01:
        digits = max(1, math.ceil(-math.log10(100 * apart)))
        return f"{100 * share:.{digits}f} % of the way to its bound"
    return f"{100 * share:.3g} % of the way to its bound"


def _narrowing(auditor: Auditor) -> str:
    """Which narrowing would have put a neighbour outside: of the parameters that came nearest to it, and farthest. It is of
    all elements, both ends and every k of a group: a share is that of the one that came nearest."""
    shares = sorted(auditor.tally.groups.items(), key=lambda each: -each[1])
    ends = [f"{name} by more than {100 * max(0.0, 1 - share):.3g} %" for name, share in (*shares[:1], *shares[-1:])]
    both = " ... ".join(dict.fromkeys(ends))
    return f"all bounds of a group narrowed together: of {both}; the others lie between them. Of one bound alone, maybe not"


def _labels(auditor: Auditor) -> Iterator[Finding]:
    tally, left_out = auditor.tally, "each unit left out, and the model asked for its own records"
    meaning = f"none of {tally.labels} certified labels changed" if tally.labels else "no query is certified at such k"
    yield counterexamples(
        f"certified labels: {_subject(auditor)}",
        "a label of stable distance L is the same on every dataset within L",
        f"{len(auditor.queries)} queries, those bisected onto the edges of labels and distances among them",
        _effort(auditor), "certified labels that changed", float(tally.wrong) if tally.labels else None,
        f"certified labels changed: {tally.turned[0]}" if tally.turned else meaning, "one label",
    )  # fmt: skip
    certified, others = ([change for held, change in tally.memorised if held == side] for side in (True, False))
    broken, moved = (sum(change != 0 for change in side) for side in (certified, others))
    meaning = f"it is exactly 0 for all {len(certified)} certified records" if certified else "no record was certified"
    yield counterexamples(
        f"memorisation of certified records: {_subject(auditor)}",
        "P(label right | in) - P(label right | out) is exactly 0 where the record's stable distance is 1 or more",
        left_out, f"{tally.units} units left out, {len(tally.memorised)} records asked", "records memorised",
        float(broken) if certified else None,
        f"{broken} of {len(certified)} certified records were memorised all the same" if broken else meaning, "one record",
    )  # fmt: skip
    if others:
        about = ("memorisation of other records", "nothing is claimed of records whose stable distance is 0", left_out)
        meaning = f"{moved} of {len(others)} are labelled otherwise by the model that never saw them"
        yield Finding(
            *about, f"{len(others)} records asked", Outcome.REPORTED, meaning, "records memorised", found=float(moved),
            strength=Strength.CERTAIN,
        )  # fmt: skip


def _pairs(auditor: Auditor) -> Iterator[Finding]:
    tally, about = auditor.tally, f": {_subject(auditor)}"
    nesting = {
        "box": ("box(D', k-1) lies within box(D, k) for neighbours D and D'", "ends of boxes"),
        "tube": ("the ball of k - 1 around D's neighbour lies within that of k around D", "radii"),
    }
    if auditor.certificate in nesting:
        claim, unit = nesting[auditor.certificate]
        yield _of_pairs(auditor, f"nesting{about}", claim, auditor.nests, tally.ends, tally.stuck, unit)
    unit = "distances" if auditor.dense else "steps of the grid"
    claim = f"{unit} of neighbours differ by 1 at most, and labels only where both are 0"
    yield _of_pairs(auditor, f"stable distances{about}", claim, auditor.exact, tally.compared, tally.torn, "queries")


def _of_pairs(auditor: Auditor, about: str, claim: str, claimed: bool, looked: int, broken: int, unit: str) -> Finding:
    pairs = auditor.tally.pairs
    why = (
        "no neighbour was trained with its bounds (audit.bounded, audit.seconds)"
        if not pairs
        else f"no {unit} were compared"
    )
    if not claimed and not auditor.exact and auditor.certificate == "tube":
        why = "nothing is claimed: under relation=remove radii go with the run's own gradients, a neighbour's with others"
    elif not claimed and not auditor.exact:
        why = f"nothing is claimed: product={auditor.problem.recipe.training.product} keeps no boxes within one another"
    elif not claimed:
        why = "nothing is claimed: the grid of k skips values"
    tested = claimed and pairs and looked
    attack = "neighbours one k away, trained with all their bounds; queries bisected onto the edges of both"
    meaning = f"{broken} of {looked} {unit} break it" if tested else why
    effort, found = f"{pairs} such neighbours", float(broken) if tested else None
    return counterexamples(about, claim, attack, effort, f"{unit} that break it", found, meaning)


def notes(auditor: Auditor) -> Iterator[str]:
    """What a reader must know beside the findings."""
    tally, units = auditor.tally, len(np.unique(auditor.problem.dataset.train.units))
    yield (
        "violations are counterexamples and certain; where none was found nothing is proved: the largest deviation over "
        "its bound says what narrowing would have been noticed"
    )
    if tally.units < units:
        limit = "audit.seconds" if auditor.cut else "audit.units"
        yield f"{tally.units} of {units} units were left out one by one ({limit} limits them, public ones stay)"
    if auditor.cut:
        planned = sum(each.planned for each in tally.kinds.values())
        yield (
            f"audit.seconds={auditor.extent.seconds:g} ended the search, each kind of attack having its share: "
            f"{tally.trained:,} of {planned:,} neighbours begun were trained, and {tally.pairs} of "
            f"{auditor.extent.bounded} with all their bounds"
        )
    yield from (f"training refused {n} neighbours: {why}" for why, n in tally.why.most_common(MAX_REFUSALS_SHOWN))
    if tally.unreached:
        yield f"{tally.unreached} neighbours were farther away than the run's bounds reach: none was kept"
    if any("beyond the ranges" in kind for kind, _ in tally.kinds):
        yield (
            "newcomers marked as beyond the ranges have features that the columns may never hold: certificates are about "
            "them too"
        )
    yield "the edits and deviations tell of private records: this report is for the data owner"


def tables(auditor: Auditor) -> dict[str, pd.DataFrame]:
    """Neighbours by edit and distance, and how near each group of parameters came to its bound."""
    edits = [
        {"edit": kind, "k": k, "planned": each.planned, "trained": each.trained, "refused": each.refused,
         "deviation / bound": each.share}
        for (kind, k), each in sorted(auditor.tally.kinds.items(), key=lambda one: -one[1].share)
    ]  # fmt: skip
    groups = [
        {"parameters": name, "deviation / bound": share, "narrowing of all noticed above, %": 100 * max(0.0, 1 - share)}
        for name, share in auditor.tally.groups.items()
    ]
    return {"certificate_edits": pd.DataFrame(edits), "certificate_parameters": pd.DataFrame(groups)}
