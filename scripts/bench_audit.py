"""How fast mechanisms are audited, and whether audits of what is rigorous reject no more often than they may.

python scripts/bench_audit.py speed [trials]      so many releases a side of every mechanism, from draws to verdict
python scripts/bench_audit.py calibrate [audits]  audits at 95 %, seeds 0, 1, ...: how many call a rigorous claim violated

Each mechanism is audited on the pair of evidence on which most is to be expected of draws, where its claim is nearly
attained. One process, one thread.
"""

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from agt.audit.findings import Finding
from agt.audit.mechanism import Plan, audit_pair, audit_quantile, expected_bound, neighbouring
from agt.audit.weights import Heads, audit_weights
from agt.mechanisms.aggregate import CertifiedQuantile
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.weights import ReleaseWeights
from agt.randomness import SeededRandomness, SystemRandomness

FARTHEST = 50
MOST = 11  # rejections of 100 audits at 95 %: more have a probability of .004, were 5 % the true rate
SETTINGS = (
    ("randomized_response", {"eps": 1.0}),
    ("randomized_response", {"eps": 1.0, "delta": 0.01}),
    ("randomized_response", {"eps": 1.0, "classes": 10}),
    ("gaussian_margin", {"mu": 1.0}),
    ("smooth_cauchy", {"eps": 1.0}),
    ("smooth_laplace", {"eps": 1.0, "delta": 0.01}),
    ("propose_test_release", {"eps": 1.0, "delta": 0.01}),
    ("global_sensitivity", {"eps": 1.0}),
    ("noisy_argmax", {"eps": 1.0}),
    ("exponential_mechanism", {"eps": 1.0}),
    ("inverse_sensitivity", {"eps": 1.0}),
)
WIDTH = 4  # of released weights

Audited = Callable[[Plan], Finding]


def audits() -> Iterator[tuple[str, Audited]]:
    """(a mechanism in words, a plan -> the verdict of an audit), of all that the product calls rigorous."""
    for name, given in SETTINGS:
        mechanism = MECHANISMS[name](**given)
        yield f"{name} {' '.join(f'{key}={value:g}' for key, value in given.items())}", _of_labels(mechanism)
    quantile, sides = CertifiedQuantile(eps=1.0), (np.array([24]), np.array([25]))
    yield "certified_quantile eps=1", lambda plan: audit_quantile(quantile, sides, FARTHEST, plan, "no data").verdict
    weights, heads = ReleaseWeights(mu=1.0), Heads.alone(WIDTH)
    yield f"release_weights mu=1, {WIDTH} weights", lambda plan: audit_weights(weights, heads, plan).verdict


def _of_labels(mechanism: Mechanism) -> Audited:
    pairs, plan = list(neighbouring(mechanism, range(FARTHEST + 1))), Plan()
    best = max(pairs, key=lambda pair: expected_bound(mechanism, pair, plan))
    return lambda plan: audit_pair(mechanism, best, plan, FARTHEST).verdict


def speed(trials: int) -> None:
    """Print seconds of one audit, drawn by the operating system's generator."""
    print(f"{'mechanism':<42} {'seconds':>8} {'of CPU':>7}   {trials} releases a side, counted")
    for name, audit in audits():
        start, used = time.perf_counter(), time.process_time()
        found = audit(Plan(trials, source=SystemRandomness()))
        seconds, used = time.perf_counter() - start, time.process_time() - used
        print(
            f"{name:<42} {seconds:>8.2f} {used:>7.2f}   {found.measure} at least {found.found:.4f} of {found.claimed:g}",
            flush=True,
        )


def calibrate(count: int) -> int:
    """Print how many audits of each mechanism reject; returns 1 if any does more often than it may."""
    print(f"{'mechanism':<42} {'trials':>7} {'fixed':>6} {'split':>6}   rejections of {count} audits at 95 %; mean bound")
    worst = 0
    for name, audit in audits():
        trials = 1000 if name.startswith(("certified", "release")) else 5000
        ways = ("split",) if trials == 1000 else ("fixed", "split")
        found = {
            way: [audit(Plan(trials, choosing=way, source=SeededRandomness(seed))) for seed in range(count)] for way in ways
        }
        wrong = {way: sum(finding.violated for finding in findings) for way, findings in found.items()}
        mean = np.mean([finding.found for finding in found["split"]])
        worst = max(worst, *wrong.values())
        claimed = found["split"][0].claimed
        print(
            f"{name:<42} {trials:>7} {wrong.get('fixed', '-')!s:>6} {wrong['split']:>6}   {mean:.4f} of {claimed:g}",
            flush=True,
        )
    allowed = MOST * count / 100
    print(f"most: {worst}; allowed: {allowed:g}")
    return int(worst > allowed)


if __name__ == "__main__":
    mode, number = [*sys.argv[1:], "", ""][:2]
    if mode == "speed":
        speed(int(number or 100_000))
    elif mode == "calibrate":
        sys.exit(calibrate(int(number or 100)))
    else:
        sys.exit(__doc__)
