"""What hides the error that a removal leaves, how much of it, and what may be promised.

A removal leaves weights w with |grad L_b(w; D')| <= beta, and |w - w*| <= beta / s, w* the exact minimiser over the records
D' that are left and s the strength. Without noise, the direction of that error may tell of who went.

| masking | what is noisy                    | budget of beta | promised                                              |
|---------|----------------------------------|----------------|-------------------------------------------------------|
| none    | nothing, least squares alone     | the tolerance  | the minimiser itself, up to rounding                  |
| loss    | b in the loss, drawn in training | sigma mu       | not proved; as published, (eps, delta)                |
| output  | the weights served, drawn anew   | s sigma mu - t | (eps, delta), proved, of each state that is served    |

t is the tolerance. mu is the largest for which a Gaussian mechanism is (eps, delta)-close in both directions (numeric.py).
003 has eps / sqrt(2 ln(1.5 / delta)) in its place (``paper_budget``), and adds eps and delta over classes, where one mu
covers them all.

Formal guarantees
    Output. Under masking=output b = 0 and w is a function of the data and of the requests so far: no draw enters it. Served
    is theta = F(w + z), z ~ N(0, sigma^2 I) drawn by the operating system after the request came, F rounding to a public
    lattice (training/removal.py). Let the requests be chosen in any way, by whoever saw every state served before (and
    given these, by coins of their own). Given all that, D' and w are fixed and z is independent of it. Training anew on D'
    would serve F(w' + z'), w' as it is computed: of a gradient of at most t, as training stops above. Both w and w' are
    vectors of floats, thus of rational numbers, and the bounds on their gradients, rounding charged, are about these
    numbers: |w - w'| <= (beta + t) / s <= sigma mu for every D' there can be, not with high probability. w + z and w' + z'
    are drawn exactly (lattice.py), so they are as hard to tell apart as N(0, 1) and N(mu, 1), in either direction: (eps,
    delta); and so are F's, post-processing: the numbers served, as a file holds them. The same of w*, the exact minimiser,
    where t is 0.
    Several states. From the update that removes a person on, each state is such a mechanism, given those before; k of them
    together are sqrt(k) mu, also where requests follow from states (Dong, Roth, Su 2022, theorem 3.2): ``together``. This
    is the adaptive promise of Gupta et al. (2021), with the failure probability of their definition 0. Neel, Roth,
    Sharifi-Malvajerdi (2021) publish f_publish(w) and keep w, as here: w itself, in the run's folder, has no noise and no
    such promise. Whether a step is taken or training starts anew is decided by beta, a function of D' and the requests: it
    is not hidden, and neither is time. States served before the removal are covered by nothing: they were made with the
    person's records, and a difference of two states, the noise apart, is what the removal changed.
    Loss. Theorem 2 of 003 compares the densities of w as those of b - u, u = grad L_b(w; D'), taking u for independent of
    b. The solver computes w from b, so u is a function of b, and what the proof integrates over is no product. Nothing
    repairs that here: the assumption is reported as not held. As b is drawn once, the promise is about one state, and about
    requests chosen without looking at any state: the difference of two states with one b has no noise in it.
    None. For squares A = H0 whatever v is, and a step leaves rounding alone (newton.py).
    Features of a network that was itself trained on the records, (eps', delta')-differentially private for all that is
    removed: the promises add (003, theorem 5; ``behind``).

Sources: Guo et al. (2020) [003]; Neel, Roth, Sharifi-Malvajerdi (2021), Descent-to-delete; Gupta, Jung, Neel, Roth,
Sharifi-Malvajerdi, Waites (2021), Adaptive machine unlearning; Dong, Roth, Su (2022), Gaussian differential privacy.
"""

import math
from dataclasses import replace

from agt.errors import ConfigError
from agt.facts import Fact, proved, void
from agt.numeric import gaussian_epsilon, gaussian_mu
from agt.settings import RemovalConfig
from agt.training.removal import RemovalState
from agt.unlearning.promise import Promise

STATES = 10  # for which what several states tell together is said
DEPENDENT = void(
    "the published proof (Guo et al. 2020, theorem 2) takes what the step leaves of the gradient for independent of the "
    "random term in the loss; the weights were computed with that term, so it is not. masking=output does without"
)
FLOATING = void(
    "the random term in the loss is a double-precision number that was added in floating point: what is published is about "
    "real numbers, and the last digits are not covered"
)
EXACT_NOISE = proved(
    "the noise has exactly the distribution of a real Gaussian that is rounded to a public lattice: no digit of what is "
    "served was made by floating-point noise"
)
DRAWN_ANEW = proved("the noise was drawn anew for this update by the operating system, independently of everything before")
SIMULATION = void("the noise comes from certificate.seed, which is recorded: a simulation, that hides nothing")


def paper_budget(sigma: float, eps: float, delta: float) -> float:
    """What 003 allows beta to be under masking=loss: sigma eps / sqrt(2 ln(1.5 / delta)), for comparison.

    Its source (Dwork and Roth 2014, theorem 3.22) has it for eps < 1, where the exact curve allows more.
    """
    return sigma * eps / math.sqrt(2 * math.log(1.5 / delta))


def together(eps: float, delta: float, states: int) -> float:
    """The eps, rounded up, at which so many served states of one (eps, delta) each are close at the same delta."""
    return gaussian_epsilon(math.sqrt(states) * gaussian_mu(eps, delta), delta)


def promise(config: RemovalConfig, state: RemovalState, strength: float) -> Promise:
    """What holds of a state after a removal.

    Args:
        config: how it was trained.
        state: as it is now, its residual within the budget.
        strength: of the objective.
    """
    away = state.residual / strength
    distance = proved(
        f"the weights, before noise, are within {away:.2g} of the exact minimiser on the records that are left (l2, all "
        f"outputs): a gradient of at most {state.residual:.2g}, rounding included, over a strong convexity of {strength:g}"
    )
    if config.masking == "none":
        words = (
            "the model is the one that training without the erased records gives, up to rounding",
            f"least squares: its weights are within {away:.2g} of the exact minimiser on the records that are left; not "
            "bit for bit",
        )
        return Promise("newton", True, 0.0, 0.0, True, words, (distance,))
    seeded = () if config.seed is None else (SIMULATION,)
    if config.masking == "loss":
        facts: tuple[Fact, ...] = (distance, DEPENDENT, FLOATING, *seeded)
        lead, rest = "not proved: as published, the model is", _OF_LOSS
    else:
        retrained = proved(
            f"training without the records, as this program computes it, is within {config.tolerance / strength:.2g} of "
            "that minimiser, too; the noise covers both distances together"
        )
        facts = (distance, retrained, *(seeded or (DRAWN_ANEW, EXACT_NOISE)))
        lead, rest = _PREDICTED if seeded else "the model is", _of_output(config)
    close = (
        f"{lead} ({config.eps:g}, {config.delta:g})-close to one trained without the erased records: whatever is computed "
        "from either is nearly as likely from the other"
    )
    return Promise("newton", False, config.eps, config.delta, config.masking == "output", (close, *rest), facts)


_PREDICTED = "not proved, as a recorded seed makes the noise: with noise that nobody can predict the model would be"
_OF_LOSS: tuple[str, ...] = (
    "its proof has a gap: an assumption that it needs does not hold",
    "it is of this state alone, and for requests chosen without looking at the model: the random term in the loss was "
    "drawn once, in training, and whoever has an earlier state sees in the difference what was removed",
)


def _of_output(config: RemovalConfig) -> tuple[str, ...]:
    joint = together(config.eps, config.delta, STATES)
    return (
        "that is of the weights that are served, with noise that was drawn after the request: also for requests that "
        "followed from what the model gave out",
        f"states served after later updates add up: {STATES} of them together are ({joint:.3g}, {config.delta:g})-close. "
        "States served before are not covered: they were made with the records",
        "the weights without noise stay in the run's folder, for later removals: of these only the distance is promised",
    )


def behind(made: Promise, eps: float, delta: float, declared: Fact) -> Promise:
    """The same behind features that were trained on the records with differential privacy: the budgets add.

    Args:
        eps, delta: of the features, for whatever is removed.
        declared: where that comes from.

    Raises:
        ConfigError: they are no budget, or the sum is none.
    """
    if not (0 <= eps < math.inf and delta >= 0 and made.delta + delta < 1):
        raise ConfigError(f"features of ({eps:g}, {delta:g}) leave no guarantee")
    total = made.eps + eps, made.delta + delta
    lead = "the model is" if made.proved and declared.held else "not proved: as stated, the model is"
    words = (
        f"{lead} ({total[0]:g}, {total[1]:g})-close to one trained without the erased records, its features too",
        *made.words[1:],
        f"the features' own ({eps:g}, {delta:g}) is in it: they were trained on the erased records",
    )
    return replace(made, exact=False, eps=total[0], delta=total[1], words=words, assumptions=(*made.assumptions, declared))
