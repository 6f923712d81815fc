"""Certificates that promise more than training keeps."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from agt.api import fit
from agt.audit.certificate_findings import audit_certificates, findings
from agt.audit.evidence import Extent
from agt.audit.findings import Finding
from agt.audit.planted import worst
from agt.bounds.box import Box
from agt.certificates.box import Certificates
from agt.data.arrays import Declared
from agt.models.box import BoxModel
from agt.models.model import Model
from agt.models.tube import TubeModel
from agt.training.loop import Progress

EXTENT = Extent(units=20, neighbours=30, farthest=2, bounded=0, queries=20, lines=6, again=False)
PAIRS = replace(EXTENT, units=0, neighbours=0, bounded=3)  # neighbours with all their bounds alone
AGAIN = replace(EXTENT, units=0, neighbours=0, again=True)  # the run itself alone
STEP = {"loss": "binary_cross_entropy", "epochs": 1, "lr": 1.0, "clip": 0.1, "dtype": "float64"}


def narrowed_box(seed: int) -> Finding:
    """Every end of every box 1 % nearer to the parameters, in a one-step run whose neighbours reach it."""
    model = _trained(seed)
    return _audited(replace(model, box=_widened(model.box, 0.99)), seed, "parameters")


def box_of_another_relation(seed: int) -> Finding:
    """Boxes for one record more or less, in a run that speaks of records replaced: each moves a step by two."""
    model = _trained(seed, relation="substitute")
    return _audited(replace(model, box=_trained(seed).box), seed, "parameters")


def box_of_other_products(seed: int) -> Finding:
    """Boxes by Rump's midpoint-radius products, in a run that is said to use exact ones."""
    settings: dict[str, Any] = {"network": (4,), "epochs": 3}
    model = _trained(seed, **settings)
    rump = replace(model, box=_trained(seed, product="rump", **settings).box)
    return _audited(rump, seed, "parameters and boxes", AGAIN)


def narrowed_tube(seed: int) -> Finding:
    """Every radius 1 % less, in a one-step run from weights of 0, where each record's gradient is as long as any can be."""
    return _audited(_with_radii(_in_tube(seed, spread=0.0, epochs=1), 0.99), seed, "parameters")


def tube_without_twist(seed: int) -> Finding:
    """Radii that leave out how the curvature itself moves."""
    model = _in_tube(seed)
    setting = replace(model.setting)
    setting.__dict__["curvature"] = replace(setting.curvature, twist=0.0)
    untwisted = replace(model, setting=setting).retrained(model.problem.dataset.train)
    return _audited(replace(untwisted, setting=model.setting), seed, "weights and radii", AGAIN)


def radii_that_do_not_nest(seed: int) -> Finding:
    """Radii twice as large as they need be: each holds its neighbours, and does not hold a neighbour's one k less."""
    return _audited(_with_radii(_in_tube(seed), 2.0), seed, "nesting", PAIRS)


def distance_one_too_large(seed: int) -> Finding:
    """Stable distances that count one k more than boxes prove."""
    return _audited(_boasting(_trained(seed), 1), seed, "certified labels")


def memorised_and_certified(seed: int) -> Finding:
    """Records each alone in a direction, which a large step learns by heart, and which are called certified."""
    rng = np.random.default_rng(seed)
    model = _trained(seed, np.eye(16) * 4, rng.permutation(np.arange(16) % 2), lr=40.0)
    return _audited(_boasting(model, 2), seed, "memorisation of certified")


@dataclass(frozen=True)
class _Boasting(BoxModel):
    """A model whose certificates reach ``more`` steps of the grid farther than they should, or less far."""

    more: int

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Certificates:
        known = super().certify(features)
        held = known.certified[np.clip(np.arange(len(known.ks)) - self.more, 0, len(known.ks) - 1)]
        rows = [known.ks.index(k) for k in ks or known.ks]
        return replace(known, ks=ks or known.ks, certified=held[rows])


def _widened(box: Box, times: float) -> Box:
    lower, upper = (
        {name: box.nominal[name] + times * (end - box.nominal[name]) for name, end in ends.items()}
        for ends in (box.lower, box.upper)
    )
    return Box.of(box.ks, box.nominal, lower, upper)


def _boasting(model: BoxModel, more: int) -> BoxModel:
    return _Boasting(**{each.name: getattr(model, each.name) for each in fields(BoxModel)}, more=more)


def _trained(seed: int, x: np.ndarray | None = None, y: np.ndarray | None = None, **settings: Any) -> BoxModel:
    model = _fitted(seed, x, y, **settings)
    assert isinstance(model, BoxModel)
    return model


def _fitted(seed: int, x: np.ndarray | None, y: np.ndarray | None, **settings: Any) -> Model:
    rng = np.random.default_rng(seed)
    if x is None or y is None:
        x = rng.normal(size=(40, 3))
        y = (x[:, 0] + 0.3 * rng.normal(size=40) > 0).astype(int)
    declared = Declared(classes=[0, 1], size=40, features=True, settings=True)
    given = {"certificate": "box", "ks": 4, "compute": {"threads": 1}, **STEP, **settings}
    return fit(x, y, declared=declared, **given).model


def _in_tube(seed: int, spread: float = 1.0, **settings: Any) -> TubeModel:
    given = {
        "certificate": {"name": "tube", "length": 1.0, "spread": spread},
        "network": (8,),
        "epochs": 4,
        "lr": 4.0,
        "clip": 0.5,
    }
    model = _fitted(seed, None, None, **{**given, **settings})
    assert isinstance(model, TubeModel)
    return model


def _with_radii(model: TubeModel, times: float) -> TubeModel:
    return replace(model, trained=replace(model.trained, radii=model.trained.radii * times))


def _audited(model: Model, seed: int, about: str, extent: Extent = EXTENT) -> Finding:
    found = findings(audit_certificates(model, extent, seed))
    return next(finding for finding in found if finding.subject.startswith(about))


def distances_that_jump(seed: int) -> Finding:
    """Stable distances that are two too short, as of boxes that are too wide: every label that is certified is the same on
    all neighbours, but beside a neighbour's, which are right, such distances are more than 1 apart."""
    return _audited(_boasting(_trained(seed), -2), seed, "stable distances", PAIRS)


def boxes_that_do_not_nest(seed: int) -> Finding:
    """Boxes twice as wide as they need be: they hold every neighbour's parameters, but do not lie within a neighbour's."""
    model = _trained(seed)
    return _audited(replace(model, box=_widened(model.box, 2.0)), seed, "nesting", PAIRS)


def sound_tube(seed: int) -> Finding:
    """A tube as it is made, every claim of it attacked; of its findings the worst."""
    return worst(findings(audit_certificates(_in_tube(seed), replace(EXTENT, bounded=2, again=True), seed)))


def sound(seed: int) -> Finding:
    """Certificates as they are made, every claim of theirs attacked; of its findings the worst."""
    return worst(findings(audit_certificates(_trained(seed), replace(EXTENT, bounded=2, again=True), seed)))


PLANTED = {
    "a box narrowed by 1 %": narrowed_box,
    "a box by another relation's rule": box_of_another_relation,
    "a box by other products than recorded": box_of_other_products,
    "a tube narrowed by 1 %": narrowed_tube,
    "a tube without the curvature's own change": tube_without_twist,
    "a stable distance one too large": distance_one_too_large,
    "a certified record that was memorised": memorised_and_certified,
    "stable distances that jump from one dataset to the next": distances_that_jump,
    "boxes that do not nest in those of a neighbour": boxes_that_do_not_nest,
    "radii that do not nest in those of a neighbour": radii_that_do_not_nest,
}
SOUND = {"boxes as they are made": sound, "a tube as it is made": sound_tube}
