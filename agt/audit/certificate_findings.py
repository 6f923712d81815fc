"""What the evidence of a certificate audit says of each claim, as findings and tables."""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd

from agt.audit.certificate import Auditor
from agt.audit.evidence import Extent
from agt.audit.findings import Finding, Outcome, Strength
from agt.models.model import Model
from agt.relations import RELATIONS

GRAINS = {"float64": 1e-6, "float32": 2e-3}
"""Dtype -> how far ends of boxes may be from those of training again on another processor, in widths of a box."""
SHOWN = 3  # refusals that are quoted


def audit_certificates(
    model: Model,
    extent: Extent,
    seed: int,
    unlike: str = "",
    on_progress: Callable[[str, int, int], None] = lambda stage, done, of: None,
) -> Auditor:
    """Attack every certificate claim of a saved model.

    Args:
        model: its problem holds the records that it was trained on.
        extent: how hard.
        seed: of the audit's own choices.
        unlike: why this machine may train to other bits than the run's; empty: it trains to the same.
        on_progress: called with the stage and how many of its neighbours are done, of how many.

    Returns:
        The auditor, whose evidence ``findings`` and ``tables`` read.
    """
    auditor = Auditor(model, extent, np.random.default_rng(seed), unlike)
    again = (("training it again", auditor.again),) if extent.again else ()
    stages = (
        *again,
        ("edits", auditor.attack),
        ("pairs with bounds", auditor.pairs),
        ("leaving one out", auditor.leave_out),
    )
    for done, (name, stage) in enumerate(stages):
        auditor.on_progress = lambda done, of, name=name: on_progress(name, done, of)  # type: ignore[misc]
        auditor.share_time(len(stages) - done)
        stage()
    return auditor


def findings(auditor: Auditor) -> tuple[Finding, ...]:
    """One for each claim."""
    return (*_again(auditor), _contained(auditor), _labels(auditor), *_memorised(auditor), *_pairs(auditor))


def notes(auditor: Auditor) -> Iterator[str]:
    """What a reader must know beside them."""
    evidence, units = auditor.evidence, len(np.unique(auditor.problem.dataset.train.units))
    yield (
        "violations are counterexamples and certain; where none was found nothing is proved: the largest deviation over "
        "its bound says what narrowing would have been noticed"
    )
    if evidence.units < units:
        limit = "audit.seconds" if auditor.cut else "audit.units"
        yield f"{evidence.units} of {units} units were left out one by one ({limit} limits them, public ones stay)"
    planned = sum(seen.planned for seen in evidence.kinds.values())
    if auditor.cut:
        yield (
            f"audit.seconds={auditor.extent.seconds:g} ended the search, each kind of attack having its share: "
            f"{evidence.trained:,} of {planned:,} neighbours begun were trained, and {evidence.pairs} of "
            f"{auditor.extent.bounded} with all their bounds"
        )
    for why, count in evidence.why.most_common(SHOWN):
        yield f"training refused {count} neighbours: {why}"
    if evidence.unreached:
        yield f"{evidence.unreached} neighbours were farther away than the run's bounds reach: none was kept"
    if evidence.unconfirmed:
        yield (
            f"{evidence.unconfirmed} neighbours trained together left a bound that they keep when trained alone (products "
            "of matrices of another shape round otherwise): they are not counted"
        )
    if any("beyond the ranges" in kind for kind, _ in evidence.kinds):
        yield (
            "newcomers marked as beyond the ranges have features that the columns may never hold: certificates are about "
            "them too"
        )
    yield "the edits and deviations tell of private records: this report is for the data owner"


def tables(auditor: Auditor) -> dict[str, pd.DataFrame]:
    """Neighbours by edit and distance, and how near each group of parameters came to its bound."""
    evidence = auditor.evidence
    edits = [
        {"edit": kind, "k": k, "planned": seen.planned, "trained": seen.trained, "refused": seen.refused,
         "deviation / bound": seen.share}
        for (kind, k), seen in sorted(evidence.kinds.items(), key=lambda each: -each[1].share)
    ]  # fmt: skip
    groups = [
        {
            "parameters": name,
            "deviation / bound": share,
            "narrowing of all noticed above, %": 100 * max(0.0, 1 - share),
        }
        for name, share in evidence.groups.items()
    ]
    return {"certificate_edits": pd.DataFrame(edits), "certificate_parameters": pd.DataFrame(groups)}


# -- findings ----------------------------------------------------------------------------------------------------------


def _subject(auditor: Auditor) -> str:
    settings = auditor.problem.settings
    kind = f"certificate={settings.certificate.name}, relation={settings.relation.name}"
    return kind if settings.ensemble.members == 1 else f"{kind}, {settings.ensemble.members} members"


def _effort(auditor: Auditor) -> str:
    """What was made, and what was not."""
    evidence = auditor.evidence
    there = np.unique(auditor.problem.dataset.train.units[~auditor.problem.dataset.train.public])
    refused, edited = sum(seen.refused for seen in evidence.kinds.values()), evidence.trained - evidence.units
    farthest = max((k for (_, k), seen in evidence.kinds.items() if seen.trained), default=0)
    out = f"{evidence.units:,} of {len(there):,} units left out, one at a time"
    hurt = f"{edited:,} neighbours edited to hurt, up to k = {farthest}" if edited else "no neighbour edited to hurt"
    cut = "; audit.seconds ended the search" if auditor.cut else ""
    return f"{out}; {hurt}{f'; {refused:,} more refused by training' if refused else ''}{cut}"


def way(share: float) -> str:
    """How far of the way to its bound a neighbour went: only the bound itself is 100 %, whatever is left or beyond."""
    apart = abs(1 - share)
    if share >= 2:
        return f"{share:.3g} times as far as its bound"
    if 0 < apart < 0.01:
        digits = max(1, math.ceil(-math.log10(100 * apart)))
        return f"{100 * share:.{digits}f} % of the way to its bound"
    return f"{100 * share:.3g} % of the way to its bound"


def _again(auditor: Auditor) -> Iterator[Finding]:
    evidence = auditor.evidence
    if evidence.bits is None:
        return
    wrong = evidence.idle > 1 or (evidence.moved > GRAINS[auditor.problem.settings.training.dtype] and not auditor.unlike)
    if not evidence.apart:
        meaning, outcome = f"all {evidence.bits} numbers are those of the run, bit for bit", Outcome.STANDS
    elif wrong:
        meaning = f"{evidence.apart} of {evidence.bits} numbers are not what training gives: the record was changed"
        outcome = Outcome.VIOLATED
    else:
        reason = auditor.unlike or (
            "another processor or number of threads would explain it; if env.json of both names the same, nothing does"
        )
        meaning = (
            f"{evidence.apart} of {evidence.bits} numbers differ, parameters within what rounding is allowed: {reason}"
        )
        outcome = Outcome.REPORTED
    on_record = "parameters and boxes" if auditor.boxes else "weights and radii" if auditor.tube else "weights"
    yield Finding(
        subject=f"{on_record} on record",
        claim="they are what the run's settings and records make",
        attack="trained again on the same records, with the same bounds",
        effort=f"{evidence.bits} numbers compared",
        outcome=outcome,
        meaning=meaning,
        measure="numbers that differ",
        claimed=0.0,
        found=float(evidence.apart),
        strength=Strength.CERTAIN,
        noticeable="any change beyond rounding" if not auditor.unlike else "parameters beyond what rounding is allowed",
    )


def _contained(auditor: Auditor) -> Finding:
    evidence, share = auditor.evidence, auditor.evidence.share
    bound = "the box of k" if auditor.boxes else "the radius of k" if auditor.tube else "k times the recorded sensitivity"
    meaning = f"the farthest neighbour went {way(share)}"
    outcome = Outcome.STANDS if evidence.groups else Outcome.UNTESTED
    if evidence.outside:
        outcome, meaning = (
            Outcome.VIOLATED,
            f"a neighbour went {way(share)}: {evidence.outside[0]}",
        )
    elif not evidence.trained:
        meaning = "no neighbour was trained (audit.units, audit.neighbours, audit.seconds)"
    elif not evidence.groups:
        meaning = "every neighbour was farther away than the run's bounds reach: none was kept"
    relation = auditor.problem.settings.relation
    ball = RELATIONS[relation.name].ball_of(relation.unit_rows)
    return Finding(
        subject=f"parameters: {_subject(auditor)}",
        claim=f"with {ball}, training stays within {bound}",
        attack="neighbours trained by the run's own constants: units left out, and edits made to hurt",
        effort=_effort(auditor),
        outcome=outcome,
        meaning=meaning,
        measure="deviation/bound",
        claimed=1.0,
        found=share if evidence.groups else None,
        strength=Strength.CERTAIN,
        noticeable=_noticeable(evidence.groups),
    )


def _noticeable(groups: Mapping[str, float]) -> str:
    """Which narrowing would have put a neighbour outside: of the parameters that came nearest to it, and farthest. It is of
    all elements, both ends and every k of a group: a share is that of the one that came nearest."""
    if not groups:
        return ""
    shares = sorted(groups.items(), key=lambda each: -each[1])
    told = [f"{name} by more than {100 * max(0.0, 1 - share):.3g} %" for name, share in (shares[0], shares[-1])]
    both = " ... ".join(dict.fromkeys(told))
    return f"all bounds of a group narrowed together: of {both}; the others lie between them. Of one bound alone, maybe not"


def _labels(auditor: Auditor) -> Finding:
    evidence = auditor.evidence
    outcome = Outcome.STANDS if evidence.labels else Outcome.UNTESTED
    meaning = (
        f"none of {evidence.labels} certified labels changed" if evidence.labels else "no query is certified at such k"
    )
    if evidence.turned:
        outcome, meaning = Outcome.VIOLATED, f"certified labels changed: {evidence.turned[0]}"
    return Finding(
        subject=f"certified labels: {_subject(auditor)}",
        claim="a label of stable distance L is the same on every dataset within L",
        attack=f"{len(auditor.queries)} queries, those bisected onto the edges of labels and distances among them",
        effort=_effort(auditor),
        outcome=outcome,
        meaning=meaning,
        measure="certified labels that changed",
        claimed=0.0,
        found=float(evidence.wrong) if evidence.labels else None,
        strength=Strength.CERTAIN,
        noticeable="one label" if evidence.labels else "",
    )


def _memorised(auditor: Auditor) -> Iterator[Finding]:
    seen = auditor.evidence.memorised
    certified = [change for held, change in seen if held]
    others = [change for held, change in seen if not held]
    broken = sum(change != 0 for change in certified)
    meaning = f"it is exactly 0 for all {len(certified)} certified records" if certified else "no record was certified"
    if broken:
        meaning = f"{broken} of {len(certified)} certified records were memorised all the same"
    yield Finding(
        subject=f"memorisation of certified records: {_subject(auditor)}",
        claim="P(label right | in) - P(label right | out) is exactly 0 where the record's stable distance is 1 or more",
        attack="each unit left out, and the model asked for its own records",
        effort=f"{auditor.evidence.units} units left out, {len(seen)} records asked",
        outcome=Outcome.VIOLATED if broken else Outcome.STANDS if certified else Outcome.UNTESTED,
        meaning=meaning,
        measure="records memorised",
        claimed=0.0,
        found=float(broken) if certified else None,
        strength=Strength.CERTAIN,
        noticeable="one record" if certified else "",
    )
    if others:
        moved = sum(change != 0 for change in others)
        yield Finding(
            subject="memorisation of other records",
            claim="nothing is claimed of records whose stable distance is 0",
            attack="each unit left out, and the model asked for its own records",
            effort=f"{len(others)} records asked",
            outcome=Outcome.REPORTED,
            meaning=f"{moved} of {len(others)} are labelled otherwise by the model that never saw them",
            measure="records memorised",
            found=float(moved),
            strength=Strength.CERTAIN,
        )


def _pairs(auditor: Auditor) -> Iterator[Finding]:
    evidence = auditor.evidence
    if auditor.boxes:
        reason = _unclaimed(auditor, auditor.nests)
        yield _of_pairs(
            auditor, "nesting", "box(D', k-1) lies within box(D, k) for neighbours D and D'", reason, evidence.ends,
            evidence.stuck, "ends of boxes",
        )  # fmt: skip
    if auditor.tube:
        yield _of_pairs(
            auditor, "nesting", "the ball of k - 1 around D's neighbour lies within that of k around D",
            _unclaimed(auditor, auditor.nests), evidence.ends, evidence.stuck, "radii",
        )  # fmt: skip
    unit = "distances" if auditor.dense else "steps of the grid"
    yield _of_pairs(
        auditor, "stable distances", f"{unit} of neighbours differ by 1 at most, and labels only where both are 0",
        _unclaimed(auditor, auditor.exact), evidence.compared, evidence.torn, "queries",
    )  # fmt: skip


def _unclaimed(auditor: Auditor, claimed: bool) -> str:
    """Why a claim about pairs cannot be tested; empty: it can."""
    if claimed:
        return "" if auditor.evidence.pairs else "no neighbour was trained with its bounds (audit.bounded, audit.seconds)"
    if not auditor.exact and auditor.tube:
        return "nothing is claimed: under relation=remove radii go with the run's own gradients, a neighbour's with others"
    if not auditor.exact:
        return f"nothing is claimed: product={auditor.problem.recipe.training.product} keeps no boxes within one another"
    return "nothing is claimed: the grid of k skips values"


def _of_pairs(auditor: Auditor, about: str, claim: str, reason: str, looked: int, broken: int, unit: str) -> Finding:
    reason = reason or ("" if looked else f"no {unit} were compared")
    meaning = reason or f"{broken} of {looked} {unit} break it"
    outcome = Outcome.UNTESTED if reason else Outcome.VIOLATED if broken else Outcome.STANDS
    return Finding(
        subject=f"{about}: {_subject(auditor)}",
        claim=claim,
        attack="neighbours one k away, trained with all their bounds; queries bisected onto the edges of both",
        effort=f"{auditor.evidence.pairs} such neighbours",
        outcome=outcome,
        meaning=meaning,
        measure=f"{unit} that break it",
        claimed=0.0,
        found=None if reason else float(broken),
        strength=Strength.CERTAIN,
        noticeable="" if reason else "one",
    )
