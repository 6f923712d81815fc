"""What is promised of a linear head's weights after a removal by Newton steps.

The promise follows from the bound on the remaining gradient and from the noise of the settings
(``masking``). Proofs: docs/proofs/masking.md.
"""

import math

from agt.facts import Fact, not_held, proved
from agt.numeric import COVER, gaussian_delta, gaussian_epsilon, gaussian_mu, next_up
from agt.training.settings import RemovalConfig
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import Remark

# The promise states how close this many states of the model are together.
STATES_TOGETHER = 10
RESIDUAL_DEPENDS_ON_NOISE = not_held("residual_depends_on_noise")
NOISE_IN_FLOATING_POINT = not_held("noise_in_floating_point")
NOISE_IS_EXACT = proved("noise_exact")
NOISE_IS_NEW = proved("noise_drawn_anew")
NOISE_FROM_SEED = not_held("noise_from_recorded_seed")


def joint_epsilon(eps: float, delta: float, states: int) -> float:
    """Return the eps at which several states together are (eps, delta)-close, rounded up.

    A state is the noisy weights after one update, which answer queries.

    Args:
        eps: the eps at which each state is (eps, delta)-close to one that was trained without the
            removed records.
        delta: the delta of each state, and of all states together.
        states: the number of states, at least 1.
    """
    # Lemma 3 of docs/proofs/masking.md: k states together are as close as two normal distributions
    # sqrt(k) mu apart.
    return gaussian_epsilon(math.sqrt(states) * gaussian_mu(eps, delta), delta)


def promise_after_removal(config: RemovalConfig, residual: float, strength: float) -> Promise:
    """Return the guarantee for a head's weights after a removal by Newton steps.

    Args:
        config: the settings that the head was trained with; ``masking`` decides the kind of
            guarantee.
        residual: bound on the norm of the objective's gradient; at most the removal budget.
        strength: the strength of the objective's regulariser.
    """
    distance = next_up(residual / strength)
    near_minimiser = proved(
        "near_minimiser_before_noise", distance=distance, gradient=residual, strength=strength
    )
    # Lemma 4 of docs/proofs/masking.md: both models are near the same minimiser, so they are within
    # (residual + tolerance) / strength of each other.
    within = next_up((residual + config.tolerance) / strength * COVER)
    if config.masking == "none":
        retrained_distance = next_up(config.tolerance / strength)
        return _promise_without_noise(near_minimiser, within, distance, retrained_distance)
    if config.masking == "loss":
        return _promise_of_loss_noise(config, near_minimiser)
    retrained = proved("retraining_near_minimiser", distance=config.tolerance / strength)
    return _promise_of_output_noise(config, (near_minimiser, retrained), within)


def _promise_without_noise(
    near_minimiser: Fact, within: float, distance: float, retrained_distance: float
) -> Promise:
    """Return the promise for ``masking=none``: exact up to a distance.

    Args:
        near_minimiser: the fact that the weights are near the minimiser over the remaining records.
        within: bound on the l2 distance of the weights from those trained without the records.
        distance: bound on the distance of the weights from the minimiser.
        retrained_distance: the distance from the minimiser at which training again would stop.
    """
    terms = (
        Remark("near_retrained", {"within": within}),
        Remark("near_minimiser", {"distance": distance, "retrained": retrained_distance}),
    )
    return Promise(
        method="newton",
        exact=True,
        eps=0.0,
        delta=0.0,
        adaptive=True,
        terms=terms,
        assumptions=(near_minimiser,),
        within=within,
    )


def _promise_of_loss_noise(config: RemovalConfig, near_minimiser: Fact) -> Promise:
    """Return the promise for ``masking=loss``: the paper's guarantee, which is not proved here.

    Args:
        config: the settings, whose eps, delta and seed are read.
        near_minimiser: the fact that the weights are near the minimiser over the remaining records.
    """
    facts = [near_minimiser, RESIDUAL_DEPENDS_ON_NOISE, NOISE_IN_FLOATING_POINT]
    is_simulated = config.seed is not None
    if is_simulated:
        facts.append(NOISE_FROM_SEED)
    close = Remark("close_as_published", {"eps": config.eps, "delta": config.delta})
    return Promise(
        method="newton",
        exact=False,
        eps=config.eps,
        delta=config.delta,
        adaptive=False,
        terms=(close, *_TERMS_OF_LOSS_NOISE),
        assumptions=tuple(facts),
    )


def _promise_of_output_noise(
    config: RemovalConfig, distance_facts: tuple[Fact, ...], within: float
) -> Promise:
    """Return the promise for ``masking=output``: (eps, delta)-close to training again.

    Args:
        config: the settings, whose sigma, eps, delta and seed are read.
        distance_facts: the facts that these weights, and those of training again, are near the
            same minimiser.
        within: bound on the l2 distance between the two, before the noise.
    """
    eps = _output_noise_epsilon(config, within)
    is_simulated = config.seed is not None
    if is_simulated:
        close_code = "close_without_seed"
        noise_facts: tuple[Fact, ...] = (NOISE_FROM_SEED,)
    else:
        close_code = "close"
        noise_facts = (NOISE_IS_NEW, NOISE_IS_EXACT)
    close = Remark(close_code, {"eps": eps, "delta": config.delta})
    return Promise(
        method="newton",
        exact=False,
        eps=eps,
        delta=config.delta,
        adaptive=True,
        terms=(close, *_output_noise_terms(config)),
        assumptions=(*distance_facts, *noise_facts),
    )


def _output_noise_epsilon(config: RemovalConfig, within: float) -> float:
    """Return the smallest eps for which the noise makes weights at a distance (eps, delta)-close.

    It is 0 if delta suffices without eps, and at most the eps of the settings.

    Args:
        config: the settings, whose sigma, eps and delta are read.
        within: bound on the l2 distance of the weights from those trained without the records.
    """
    # Lemma 2 of docs/proofs/masking.md: the served weights are as close as two normal distributions
    # that are within / sigma apart.
    # COVER (slightly above 1) covers the roundings of this bound itself.
    mu = within / config.sigma * COVER
    if gaussian_delta(0.0, mu) <= config.delta:
        return 0.0
    return min(config.eps, gaussian_epsilon(mu, config.delta))


_TERMS_OF_LOSS_NOISE: tuple[Remark, ...] = (Remark("proof_has_gap"), Remark("noise_of_training"))


def _output_noise_terms(config: RemovalConfig) -> tuple[Remark, ...]:
    """Return the terms of the promise for ``masking=output`` that follow its summary.

    Args:
        config: the settings, whose eps and delta are read.
    """
    eps_of_states = joint_epsilon(config.eps, config.delta, STATES_TOGETHER)
    states_together = {"states": STATES_TOGETHER, "eps": eps_of_states, "delta": config.delta}
    return (
        Remark("noise_after_request"),
        Remark("at_most", {"eps": config.eps, "delta": config.delta}),
        Remark("states_together", states_together),
        Remark("weights_before_noise"),
    )
