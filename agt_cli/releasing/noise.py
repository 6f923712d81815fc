"""Pay for DP-SGD's noise in a training run with boxes (000, Algorithm 1), and state what it gives.

Two guarantees are kept apart. The certificates compare with the same training on other data *with
the same noise*: for every draw of the noise they are those of a deterministic training, and so are
the labels that are released from them. The (epsilon, delta) guarantee of the weights is about the
distribution of the noise. Neither covers weights and labels together, because both are functions of
one draw.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from agt import sentences
from agt.certificates.conditions import Condition, declarations
from agt.certificates.requirements import refusal_of
from agt.errors import CheckError, ConfigError
from agt.ledger.book import DRAW
from agt.ledger.payer import Reservation
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.claims import describe_neighbours
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.output import Output
from agt.models.box import assess_problem
from agt.numeric import UP, gaussian_mu
from agt.problem import Settings
from agt.training.checkpoint import Checkpoints
from agt.training.noise import SEED, NoisePlan, noise_seed
from agt.training.settings import NoiseConfig
from agt_cli.ledger_files import nothing_to_pay
from agt_cli.releasing.payer import payer_of, people_of
from agt_cli.releasing.spent import Spending, recorded_spending, spending
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings

MECHANISM = "noise in training"
REQUIRED_CONDITIONS = "bceg"
"""The conditions that the guarantee of the weights needs: a, d and f are about boxes."""
REDRAWN = (
    "the certificates of this run hold only for training with the noise that was drawn here. "
    "Training again draws new noise, which may change the label of a query, so the "
    "certificates say nothing about retraining or unlearning"
)
SCOPE = (
    "the guarantee covers only the file model.safetensors. The other files of the folder, "
    "such as bounds and metrics, also depend on the private data, and are not covered. The "
    "guarantee holds only for data that training does not refuse. Training refuses, for "
    "example, a batch above n_max, a unit (person) with more than relation.unit_rows rows, and "
    "a missing class"
)


@dataclass(frozen=True)
class NoisyWeights:
    """What a ledger is charged for noise in training (``agt.ledger.payer.Charged``).

    Attributes:
        guarantee: the guarantee of the Gaussian mechanism whose cost is charged
            (``equivalent_gaussian``).
        output: the kind of output that is released.
        mechanism: the name of the mechanism in the ledger and in spent.json.
    """

    guarantee: GaussianDP
    output: Output = Output.WEIGHTS
    mechanism: str = MECHANISM


@contextmanager
def paying_for_noise(
    settings: RunSettings, record: RunRecord, prepared: Prepared, checkpoints: Checkpoints
) -> Iterator[Sequence[str]]:
    """Pay for the noise of a training and write spent.json, then run the body, which trains.

    Without noise nothing is paid or written. Order matters: the seed of the noise is on disk before
    anything is paid, so that a resumed run draws the same noise, and finds the entry that paid for
    it. (Where spent.json exists without the seed, somebody removed the seed.)

    Args:
        settings: the settings of the run.
        record: the record of the run; its env.json and spent.json are written.
        prepared: the data of the run.
        checkpoints: the folder of checkpoints, in which the seed is stored.

    Yields:
        Sentences that say which ledger counts the release, or why none does; empty: there is no
        noise.

    Raises:
        ConfigError: a ledger is named, but nothing is released, or the guarantee is not proved.
        CheckError: another ledger paid for this run before.
        Exhausted: the ledger's remaining budget is too small.
    """
    ledger = record.config.get("ledger")
    noise = settings.noise
    if noise is None:
        if ledger is not None:
            raise nothing_to_pay(ledger)
        yield ()
        return
    simulated = noise.seed is not None
    entry = None
    account_sentences = Uncounted("call").lines()
    if not simulated:
        reservation, account_sentences = _pay(settings, noise, record, prepared, checkpoints)
        entry = reservation.entry
    spent = Spending(
        what="weights",
        mechanism=MECHANISM,
        guarantee=target_guarantee(noise.epsilon, noise.delta),
        totals=(),
        queries=0,
        dataset=prepared.dataset.name,
        simulated=simulated,
        ledger=entry,
    )
    with spending(record, {"data_digest": prepared.loaded.digest}, spent):
        yield account_sentences


def _pay(
    settings: RunSettings,
    noise: NoiseConfig,
    record: RunRecord,
    prepared: Prepared,
    checkpoints: Checkpoints,
) -> tuple[Reservation, list[str]]:
    """Reserve budget for one release of noisy weights, unless a resumed run did so before.

    The ledger's entry contains a hash of the noise's seed. So a resumed run finds the entry that
    paid for it, even if it was killed before it could write spent.json, and no entry of another
    run.

    Args:
        settings: the settings of the run.
        noise: the settings of its noise.
        record: the record of the run; env.json gets the hash and the ledger.
        prepared: the data of the run.
        checkpoints: the folder of checkpoints, in which the seed is stored; it is drawn here if no
            seed is stored yet.

    Returns:
        The reservation, and sentences that say which ledger counts it, or why none does.

    Raises:
        ConfigError: the guarantee of the weights is not proved, so no ledger may pay.
        CheckError: another ledger paid for this run before.
        Exhausted: the ledger's remaining budget is too small.
    """
    seed = checkpoints.draw_once(SEED, lambda: noise_seed(noise))
    people = people_of(prepared.loaded, settings, record.config)
    draw = f"{DRAW}{sha256(f'{seed:032x}'.encode()).hexdigest()}"
    with payer_of(record.config.get("ledger"), people, record, draw) as payer:
        missing = missing_conditions(assess_problem(prepared.problem(settings)))
        if payer.name and missing:
            reason = refusal_of(missing[0])
            raise ConfigError(
                f"ledger={payer.name} cannot pay for the noisy weights, because their privacy "
                f"guarantee is not proved: {reason}"
            )
        record.environment(draw=draw)
        charged = NoisyWeights(equivalent_gaussian(noise.epsilon, noise.delta))
        reservation = payer.find_earlier(charged)
        before = recorded_spending(record.folder).get("ledger")
        if before and reservation is None:
            entry = before["entry"]
            population = before["population"]
            name = payer.name or "none"
            raise CheckError(
                f"ledger={name}: this is not the ledger that paid for this run. According to "
                f"spent.json, entry {entry} of the ledger of {population} paid for it, but "
                f"ledger={name} has no such entry: give the ledger that paid, or start a new run"
            )
        reservation = reservation or payer.reserve(charged, 1)
        counted = payer.account(reservation)
        return reservation, [] if counted is None else counted.lines()


def missing_conditions(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the conditions that the noisy weights require and that do not hold."""
    return [c for c in conditions if c.letter in REQUIRED_CONDITIONS and not c.held]


def target_guarantee(epsilon: float, delta: float) -> dict[str, Any]:
    """Return the (epsilon, delta) guarantee that the settings ask for, as JSON files have it.

    It is not checked: no range of the numbers is required, and conditions may not be met.
    """
    return {"kind": "approximate", "eps": epsilon, "delta": delta}


def equivalent_gaussian(epsilon: float, delta: float) -> GaussianDP:
    """Return the guarantee of the Gaussian mechanism that a ledger charges for (epsilon, delta).

    Its mu is rounded up, so that the charge is never too small.
    """
    return GaussianDP(gaussian_mu(epsilon, delta) * (1 + UP))


def noise_words(
    settings: Settings, noise: NoisePlan, conditions: Sequence[Condition], account: Sequence[str]
) -> list[str]:
    """Return the sentences of a report about noisy weights; empty: training was without noise.

    The first sentence says whether the guarantee is proved, or that it is a simulation.

    Args:
        settings: the settings of the run.
        noise: the plan of the noise: its size and steps.
        conditions: a to g, as assessed for the run.
        account: sentences that say which ledger counts the weights, or why none does.
    """
    config = settings.noise
    if config is None:
        return []
    required = [c for c in conditions if c.letter in REQUIRED_CONDITIONS]
    caveat = (
        "the training noise comes from a pseudo-random generator seeded by the operating "
        "system, and is added in floating point, so the last digits of a noisy number can "
        "reveal the number without noise (Mironov 2012)"
    )
    if config.seed is not None:
        caveat = (
            f"this is a simulation: the setting seed={config.seed} determines the training "
            "noise, so the result is not protected from anyone who knows this seed"
        )
    words = [
        *_guarantee_words(settings, config, conditions),
        _size_words(settings, noise),
        caveat,
        *map(str, declarations(required)),
        sentences.APART,
        REDRAWN,
        *account,
    ]
    if config.seed is not None:
        return sentences.simulation(sentences.NOISE_FROM_SEED, words)
    return words


def _guarantee_words(
    settings: Settings, config: NoiseConfig, conditions: Sequence[Condition]
) -> list[str]:
    """Return sentences with the guarantee of the weights, or one for each condition not met."""
    guarantee = sentences.noise_guarantee(config.epsilon, config.delta)
    missing = missing_conditions(conditions)
    if missing:
        return [
            f"NO PROOF OF PRIVACY for the noisy weights, which were meant to be {guarantee}: "
            f"{reason}"
            for reason in map(refusal_of, missing)
        ]
    neighbours = describe_neighbours(settings.relation)
    return [
        f"the weights in model.safetensors are {guarantee} for {neighbours}, provided "
        "that they are computed in exact arithmetic",
        SCOPE,
    ]


def _size_words(settings: Settings, noise: NoisePlan) -> str:
    """Return sentences with the noise of each training step, and the mu of all steps together."""
    all_steps = settings.training.epochs * settings.training.batch.count
    steps = f"{noise.epochs} of the {all_steps} training steps"
    return (
        f"Gaussian noise with standard deviation {noise.sigma:.4g} is added to every "
        "element of the direction of each training step. Gradients are clipped elementwise, "
        "so one unit (person) changes this direction by at most "
        f"{noise.sensitivity:.4g} in l2 norm. One unit affects {steps}. All steps together "
        f"are mu-Gaussian differentially private with mu = {noise.mu:.4g}"
    )


def proved(settings: RunSettings, conditions: Sequence[Condition]) -> bool:
    """Return whether every condition of the weights' guarantee holds, and the seed is secret.

    The noise of a simulation has a seed that the settings name, so it is not secret.
    """
    simulated = settings.noise is not None and settings.noise.seed is not None
    return not simulated and not missing_conditions(conditions)
