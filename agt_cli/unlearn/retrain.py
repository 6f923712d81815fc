"""method=retrain: trained from scratch on the records that remain. It always works, and costs what training costs.

Formal guarantees
    Training is a function A(D, r) of the data and of public constants r: seed, keys of hashes, settings. The new state is
    A(D', r), computed from its beginning; nothing of A(D, r) is read. So it is exact for the D' that remain, however D'
    came about: also where each request followed from what earlier states gave out. What adaptive requests can do is make
    D' depend on r (erase whoever the seed treated in some way), so that (D', r) are not distributed as for a first
    training (Gupta et al. 2021, whose attack on ensembles is of this kind). ``fresh`` draws r' from the operating system
    after the last request: then r' is independent of D' and of everything given out, and A(D', r') has, given D', exactly
    the distribution of a first training. What D' itself tells no method undoes.
    Settings left to the recipe are settled from D' as a new run settles them: from its declared size, else its number of
    records.
    Noise of the training's own (noise.epsilon) is refused. Its weights are a release: another draw is another release about
    everybody who remains, which a run of its own must claim and pay for.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agt.errors import CheckError
from agt.facts import Standing, proved
from agt.models.heads import head_of
from agt.settings import ComputeConfig, RemovalConfig, validate
from agt.unlearning.masking import DRAWN_ANEW
from agt.unlearning.promise import Promise, Removal
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.choices import bound, hashes
from agt_cli.runs.model import fit
from agt_cli.runs.prepare import Prepared, RunSettings, settings_of, use_threads
from agt_cli.runs.trained import write_trained
from agt_cli.unlearn.job import Job

KEPT = "its seed and keys are those that the run recorded, so that requests may have followed from what they did"
ANEW = "its seed and keys were drawn anew by the operating system after the last request (Gupta et al. 2021)"
NOTHING = "it draws nothing, neither a seed nor keys of hashes: it is a function of the records that remain"
NOISE = "it draws nothing but its noise, anew and by the operating system: no seed and no keys of hashes"
FROM_NOTHING = proved("training began at its own initial parameters and read no earlier state of the run")


def retrain(job: Job, record: RunRecord, console: Console) -> Removal:
    """Train from scratch (a ``Method``).

    Raises:
        CheckError: retraining is forbidden, or the training drew private noise.
    """
    started = time.perf_counter()
    if not job.may_retrain:
        raise CheckError("method=retrain: forbid_retraining=true forbids just that: leave one of them out")
    _check_noise(job.settings)
    settings, prepared = _drawn_anew(job, record) if job.fresh else (from_the_start(job), job.prepared)
    model = fit(prepared, settings, console)
    seconds = time.perf_counter() - started
    write_trained(record, prepared, settings, model, seconds)
    facts = {"steps_retrained": model.plan.steps * settings.ensemble.members}
    words = (f"trained from scratch on the {len(job.prepared.dataset.train)} records that remain",)
    return Removal(_promise(job, settings), job.count, seconds, facts, words)


def from_the_start(job: Job) -> RunSettings:
    """The settings to train with again.

    The head as training begins: of a network of the user's own a run keeps the layers alone. And threads, kernel and pieces
    as the run had them: last bits depend on them.
    """
    recorded: ComputeConfig = validate(ComputeConfig, job.run.config.get("compute"), "compute")
    compute = replace(recorded, device=job.settings.compute.device)
    use_threads(compute)
    return replace(job.settings, model=head_of(job.run.config.get("model")), compute=compute)


def fresh_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same configuration with every seed and key that its training reads drawn anew by the operating system; no other.

    A declaration that the settings were chosen on public data is bound to the new ones: draws look at no data.
    """
    training, ensemble = dict(config["training"]), dict(config.get("ensemble") or {})
    certificate = dict(config.get("certificate") or {"name": "box"})
    if certificate["name"] in ("box", "tube"):  # which begin at random parameters
        training["seed"] = secrets.randbits(63)
    if (training.get("batch") or {}).get("count", 1) != 1:
        training["batch"] = {**training["batch"], "key": f"k{secrets.token_hex(16)}"}
    if ensemble.get("members", 1) > 1:
        ensemble["key"] = f"k{secrets.token_hex(16)}"
    if (certificate.get("features") or {}).get("map", "none") != "none":
        certificate["features"] = {**certificate["features"], "seed": secrets.randbits(63)}
    if certificate["name"] == "removal" and certificate.get("seed") is not None:
        certificate["seed"] = secrets.randbits(63)
    fresh = {**config, "training": training, "ensemble": ensemble, "certificate": certificate}
    declared = training.get("chosen_on") == "public" and training.get("chosen_for") == hashes(config)
    return bound(fresh) if declared else fresh


def _drawn_anew(job: Job, record: RunRecord) -> tuple[RunSettings, Prepared]:
    """The settings with fresh seeds and keys, which the record then has, too; and the data that they are for."""
    record.reconfigure(fresh_config(record.config))
    settings = replace(settings_of(record.config), compute=from_the_start(job).compute)
    void = settings.choices.standing is Standing.VOID
    return settings, replace(job.prepared, choices=settings.choices) if void else job.prepared


def _promise(job: Job, settings: RunSettings) -> Promise:
    certificate = settings.certificate
    noisy = isinstance(certificate, RemovalConfig) and certificate.masking != "none" and certificate.seed is None
    how = (
        "with noise drawn anew: its distribution is the same"
        if noisy
        else "bit for bit what the same program makes of them on this machine"
    )
    trained = (
        f"the model is what training without the erased records gives: trained from scratch on those that remain, {how}"
    )
    drawn = ANEW if job.fresh else KEPT if _draws(job.run.config) else NOISE if noisy else NOTHING
    facts = (FROM_NOTHING, DRAWN_ANEW) if noisy else (FROM_NOTHING,)
    return Promise("retrain", True, 0.0, 0.0, drawn != KEPT, (trained, drawn), facts)


def _draws(config: Mapping[str, Any]) -> bool:
    """Whether training reads any seed or key, so that ``fresh_config`` changes something."""
    return fresh_config(config) != dict(config)


def _check_noise(settings: RunSettings) -> None:
    if settings.noise is not None:
        raise CheckError(
            "method=retrain: this run's weights carry noise of their own (noise.epsilon) and are a release. Training again "
            "draws other noise: a second release about everybody who remains, which a run of its own must claim and pay "
            "for: agt train on the data without the erased rows, with ledger=..., and delete this run"
        )
