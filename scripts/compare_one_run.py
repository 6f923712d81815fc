"""How much of the true epsilon each bound of an audit in one run recovers, on the same scores.

    python scripts/compare_one_run.py [--seeds 21] [--json]

A Gaussian mechanism gives out m orthogonal canaries, each in by its own fair coin, with noise that is (epsilon, 10^-5)-DP
exactly; a canary's score is the log likelihood ratio of its own coordinate. Where it is ``trained``, that comes from ten
steps of DP-SGD on full batches of other records, in which each canary has a coordinate of the gradient to itself.

Each bound guesses as many coins as ``planned_guesses`` says from the claim, half of them in, half out. ``many runs`` is the
classic audit with as many trials, each a run of its own: a threshold at 0, fixed beforehand, Clopper-Pearson limits, once
for (epsilon, delta) and once for mu. Medians over seeds, at 95 %.

``steinke`` and ``exact`` hold for every (epsilon, delta)-DP mechanism, ``gdp`` for every one that is mu-GDP;
``independent`` and ``many runs`` suppose that no trial meddles with another, which is so here. ``wrong`` is how often, over
all seeds and rows, a bound exceeds the truth: 5 % are allowed.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import nn

from agt.audit.canaries import dirac
from agt.audit.dpsgd import Claim, likelihood
from agt.audit.estimates import Mistakes, epsilon_bound, mu_bound
from agt.audit.heads import head_for
from agt.audit.one_run import BOUNDS, guesses_from, one_run_epsilon, planned_guesses
from agt.audit.reference import Reference
from agt.data.dataset import Records
from agt.numeric import gaussian_epsilon, gaussian_mu

CANARIES, EPSILONS, DELTA, CONFIDENCE = (100, 1000, 10_000), (1.0, 2.0, 4.0, 8.0), 1e-5, 0.95
TRAINED, OTHERS, STEPS = 1000, 100, 10
Audit = Callable[[np.ndarray, np.ndarray], float]  # scores, coins -> epsilon
Game = Callable[[int, float, int], tuple[np.ndarray, np.ndarray]]  # canaries, mu, seed -> scores, coins
Row = dict[str, Any]


def drawn(m: int, mu: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and coins of a Gaussian mechanism's own canaries."""
    rng = np.random.default_rng(seed)
    inside = rng.random(m) < 0.5
    return mu * (rng.standard_normal(m) + mu * inside) - mu * mu / 2, inside


def trained(m: int, mu: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and coins of canaries in DP-SGD."""
    rng = np.random.default_rng(seed)
    ids = np.arange(OTHERS).astype(str)
    records = Records(
        rng.standard_normal((OTHERS, m)), rng.integers(2, size=OTHERS), ids, ids, np.zeros(OTHERS, dtype=bool)
    )
    head = head_for(nn.Sequential(nn.Linear(m, 1)), "binary_cross_entropy", OTHERS + m)
    claim = Claim(math.sqrt(STEPS) / mu, 1.0, STEPS, gaussian_epsilon(mu, DELTA), DELTA)
    inside = rng.random(m) < 0.5
    sight = Reference(claim, head, records, clip=1.0, lr=0.5, seed=seed).train(
        dirac(m, head, records, seed), inside[None, None]
    )
    return likelihood(sight, claim).sum(1)[0], inside


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=21, help="runs a row")
    parser.add_argument("--json", action="store_true", help="rows as JSON, shares from 0 to 1")
    given = parser.parse_args(arguments)
    rows = [compared(m, epsilon, given.seeds) for m in CANARIES for epsilon in EPSILONS]
    rows += [compared(TRAINED, epsilon, given.seeds, trained) for epsilon in EPSILONS]
    print(json.dumps(rows, indent=1) if given.json else table(rows))


def compared(m: int, epsilon: float, seeds: int, game: Game = drawn) -> Row:
    """The medians of every audit on the same scores."""
    mu, audits = gaussian_mu(epsilon, DELTA), audits_of(m, epsilon)
    games = [game(m, mu, seed) for seed in range(seeds)]
    found = np.array([[audit(*scores) for audit in audits.values()] for scores in games])
    shares = {name: statistics.median(column) / epsilon for name, column in zip(audits, found.T.tolist(), strict=True)}
    wrong = dict(zip(audits, (found > epsilon).mean(axis=0).tolist(), strict=True))
    return {"canaries": m, "game": game.__name__, "epsilon": epsilon, "shares": shares, "wrong": wrong, "seeds": seeds}


def audits_of(m: int, epsilon: float) -> dict[str, Audit]:
    """Every bound with the number of guesses that its claim suggests, and the classic audits."""
    numbers = {bound: planned_guesses(m, epsilon, DELTA, CONFIDENCE, bound) for bound in BOUNDS}
    return {bound: one_run(bound, number) for bound, number in numbers.items()} | {
        "many runs": lambda scores, inside: epsilon_bound(mistakes(scores > 0, inside), DELTA, CONFIDENCE),
        "many runs, mu": lambda scores, inside: of_mu(mu_bound(mistakes(scores > 0, inside), CONFIDENCE)),
    }


def one_run(bound: str, number: int) -> Audit:
    def audit(scores: np.ndarray, inside: np.ndarray) -> float:
        guesses = guesses_from(scores, inside, number - number // 2, number // 2)
        return one_run_epsilon(guesses.right, guesses.made, guesses.canaries, DELTA, CONFIDENCE, bound)

    return audit


def mistakes(said: np.ndarray, inside: np.ndarray) -> Mistakes:
    having = int(inside.sum())
    return Mistakes(int((said & ~inside).sum()), len(inside) - having, int((~said & inside).sum()), having)


def of_mu(mu: float) -> float:
    return gaussian_epsilon(mu, DELTA) if mu else 0.0


def table(rows: list[Row]) -> str:
    names = list(rows[0]["shares"])
    lines = [" | ".join(["canaries", "game", "epsilon", *names]), " | ".join(["---:"] * (3 + len(names)))]
    lines += [
        " | ".join(
            [str(row["canaries"]), row["game"], f"{row['epsilon']:g}", *(f"{row['shares'][name]:.0%}" for name in names)]
        )
        for row in rows
    ]
    means = [statistics.fmean(row["shares"][name] for row in rows) for name in names]
    wrong = [statistics.fmean(row["wrong"][name] for row in rows) for name in names]
    lines.append(" | ".join(["mean", "", "", *(f"{mean:.0%}" for mean in means)]))
    lines.append(" | ".join(["wrong", "", "", *(f"{share:.1%}" for share in wrong)]))
    return "\n".join(f"| {line} |" for line in lines)


if __name__ == "__main__":
    main()
