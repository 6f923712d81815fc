"""Methods of unlearning that forget to remove, each audited as ``agt audit unlearning`` audits those of ``agt unlearn``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import agt
from agt.audit.findings import Finding
from agt.audit.planted import SURE, worst
from agt.audit.unlearning import Attack, Effort, Promised, Rows, Served, Unlearn, audit_unlearning, bits
from agt.models.linear import LinearModel
from agt.models.model import Model, fit
from agt.models.removal import RemovalModel, training_rows
from agt.numeric import gaussian_mu
from agt.problem import Problem
from agt.unlearning.masking import promise
from agt.unlearning.newton import Head, brought_within

ROWS, WIDTH, GONE, MANY, SIGMA = 240, 6, 12, 60, 0.02
EFFORT = Effort(releases=4_000)
EXACT = Promised("the model is what training without the erased records gives", exact=True)
ANSWERS = Promised("every label that is given is the one that training without the erased records gives", exact=True)


def problem(seed: int, certificate: Any, **settings: Any) -> Problem:
    """A training on two classes that overlap."""
    rng, y = np.random.default_rng(seed), np.arange(ROWS) % 2
    x = 0.3 * (rng.normal(size=(ROWS, WIDTH)) + y[:, None])
    declared = agt.Declared(classes=[0, 1], size=ROWS, features=True, settings=True)
    return agt.fit(x, y, declared=declared, certificate=certificate, ks=40, **settings).model.problem


def without(trained: Problem, rows: Rows) -> Problem:
    """The same on the others."""
    kept = ~np.isin(np.arange(ROWS), rows)
    return trained.on(replace(trained.dataset, train=trained.dataset.train.take(kept)))


def request(rows: int = GONE) -> Attack:
    """Records of one class: all that go pull the same way."""
    return Attack(f"a request of {rows} records of one class", (lambda served: np.arange(rows) * 2,))


def looking() -> Attack:
    """Whoever the weights that are served answer most wrongly asks next."""

    def wrong(served: Served | None) -> Rows:
        assert served is not None
        order: np.ndarray = np.argsort(served.shown)
        return order[~np.isin(order, np.arange(GONE) * 2)][:GONE]

    return Attack("a second request, chosen by what the first left", (*request().requests, wrong))


@dataclass(frozen=True)
class Newton:
    """Certified removal at one model: a step, brought within the budget, and noise drawn anew.

    Attributes:
        model: as trained.
        rng: of noise. The product's comes from the operating system; of what is planted nothing is private.
        stepped: which rows a step is taken for, of those that are asked for; None: these, and what that leaves is measured.
        scale: of the noise, over the claimed one.
        reused: whether every state has the noise of the first.
    """

    model: RemovalModel
    rng: np.random.Generator
    stepped: Callable[[Rows], Rows] | None = None
    scale: float = 1.0
    reused: bool = False

    @classmethod
    def trained(cls, seed: int, **flaws: Any) -> "Newton":
        """On the data of a seed."""
        certificate = {"name": "removal", "sigma": SIGMA}
        model = fit(problem(seed, certificate, weight_decay=0.05))
        assert isinstance(model, RemovalModel)
        return cls(model, np.random.default_rng(seed), **flaws)

    @property
    def claimed(self) -> Promised:
        """What the method promises."""
        return Promised.of(promise(self.model.config, self.model.state, self.model.known.objective.strength))

    def begin(self) -> tuple[Served, Unlearn]:
        """At the trained model, whose steps go on from one another."""
        head, left = Head.of(self.model.known.objective, self.model.state), np.ones(ROWS, dtype=bool)
        phi, labels = training_rows(self.model.problem, self.model.features)
        targets = self.model.known.objective.targets(labels, 2)
        first = self._served(self.model.state.weight, self.model.state.residual)
        kept = None if first.seen is None or not self.reused else first.seen - first.values

        def unlearn(rows: Rows) -> Served:
            left[rows] = False
            taken = rows if self.stepped is None else self.stepped(rows)
            if len(taken):
                head.remove(phi[taken], targets[taken])
            if self.stepped is None:
                brought_within(head, phi[left], targets[left], self.model.budget or 0.0)
            return self._served(head.weight, head.residual, kept)

        return first, unlearn

    def retrained(self, rows: Rows) -> Served:
        """Training without them."""
        again = fit(without(self.model.problem, rows))
        assert isinstance(again, RemovalModel)
        return self._served(again.state.weight, again.state.residual)

    def _served(self, weight: np.ndarray, residual: float, noise: np.ndarray | None = None) -> Served:
        values = weight.ravel()

        def draw(n: int) -> np.ndarray:
            fresh = self.scale * self.rng.normal(0, SIGMA, (n, len(values)))
            return values + (fresh if noise is None else np.broadcast_to(noise, fresh.shape))

        seen = draw(1)[0]
        phi, labels = training_rows(self.model.problem, self.model.features)
        right = (phi @ seen) * (2 * labels - 1)
        within = residual / self.model.known.objective.strength
        return Served(values, within=within, draw=draw, seen=seen, sigma=SIGMA, shown=right)


def of_newton(newton: Newton, attacks: Sequence[Attack], effort: Effort = EFFORT) -> tuple[Finding, ...]:
    """The audit of a Newton method."""
    return audit_unlearning("a Newton step", newton.begin, newton.retrained, attacks, newton.claimed, effort)[0]


def caught(findings: Sequence[Finding], measure: str) -> Finding:
    """The finding of one test."""
    return next(finding for finding in findings if finding.measure == measure)


def step_forgotten(seed: int) -> Finding:
    """The state stays; noise is drawn anew."""
    return caught(of_newton(Newton.trained(seed, stepped=lambda rows: rows[:0]), [request()]), "epsilon")


def step_for_others(seed: int) -> Finding:
    """The step is taken for the records next to those that ask."""
    return caught(of_newton(Newton.trained(seed, stepped=lambda rows: rows + 1), [request()]), "distance/claimed")


def little_noise(seed: int) -> Finding:
    """A third of the noise that is claimed."""
    return caught(of_newton(Newton.trained(seed, scale=1 / 3), [request()]), "noise/claimed")


def noise_kept(seed: int) -> Finding:
    """Noise that the trained model had already shown: requests that were chosen by it are told from others."""
    return caught(of_newton(Newton.trained(seed, reused=True), [looking()]), "epsilon")


def of_served(unlearned: Callable[[Rows], Served], retrained: Callable[[Rows], Served], claimed: Promised) -> Finding:
    """The audit of a method that is asked once, by many."""
    return audit_unlearning(claimed.words, lambda: (None, unlearned), retrained, [request(MANY)], claimed, EFFORT)[0][0]


def record_kept(seed: int) -> Finding:
    """Training again, from all but the last of the records that asked."""
    trained = problem(seed, "stability")

    def on(rows: Rows) -> Served:
        return Served(bits(fit(without(trained, rows))))

    return of_served(lambda rows: on(rows[:-1]), on, EXACT)


def shard_kept(seed: int) -> Finding:
    """An ensemble whose members that lost a record are kept."""
    trained = problem(seed, "stability", members=3, compute={"threads": 1})
    model = fit(trained)
    return of_served(lambda rows: Served(bits(model)), lambda rows: Served(bits(fit(without(trained, rows)))), EXACT)


def answered_uncertified(seed: int) -> Finding:
    """Every query is answered while requests wait, whatever its stable distance."""
    trained = problem(seed, "stability")
    model = fit(trained)
    queries = np.random.default_rng(seed + 1).normal(0.15, 0.3, (2_000, WIDTH))  # some lie where labels change

    def on(model: Model) -> Served:
        return Served(model.predict(queries))

    return of_served(lambda rows: on(model), lambda rows: on(fit(without(trained, rows))), ANSWERS)


def group_as_one(seed: int) -> Finding:
    """Private weights that stay as they are: near those of training without one record, and claimed so of sixty."""
    trained, (eps, delta) = problem(seed, "stability"), (1.0, 1e-4)
    model, rng = fit(trained), np.random.default_rng(seed)
    assert isinstance(model, LinearModel)
    sigma = model.moves / gaussian_mu(eps, delta)

    def served(of: Model) -> Served:
        assert isinstance(of, LinearModel)
        return Served(of.trained.weight.numpy().ravel(), noise=lambda n: rng.normal(0, sigma, n))

    claimed = Promised(f"({eps:g}, {delta:g})-close", False, eps, delta)
    return of_served(lambda rows: served(model), lambda rows: served(fit(without(trained, rows))), claimed)


def step_taken(seed: int) -> Finding:
    """A step for the records that go, and noise as is claimed."""
    return worst(of_newton(Newton.trained(seed), [request(), looking()], replace(EFFORT, confidence=SURE)))


def trained_again(seed: int) -> Finding:
    """Training from those that stay."""
    trained = problem(seed, "stability")

    def on(rows: Rows) -> Served:
        return Served(bits(fit(without(trained, rows))))

    return of_served(on, on, EXACT)


PLANTED = {
    "unlearning: the Newton step is forgotten": step_forgotten,
    "unlearning: the Newton step is for other records": step_for_others,
    "unlearning: a third of the noise": little_noise,
    "unlearning: noise that was shown before": noise_kept,
    "unlearning: training again keeps a record": record_kept,
    "unlearning: no member of the ensemble is trained again": shard_kept,
    "unlearning: what is not certified is answered": answered_uncertified,
    "unlearning: the claim of one record is made of sixty": group_as_one,
}
SOUND = {
    "unlearning: a step for the records that go": step_taken,
    "unlearning: training again": trained_again,
}
