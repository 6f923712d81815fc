"""Whether the files of a run agree with each other, and what may be claimed of it today."""

import math

from safetensors import SafetensorError
from safetensors.numpy import load

from agt.audit.findings import NAME as AUDIT
from agt.audit.findings import read_audit
from agt.manifest import Broken
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP
from agt.mechanisms.objective import Noises, Shape
from agt.mechanisms.rigour import Claim, Output, claim, neighbours_of
from agt.mechanisms.statement import Statement, read_claim
from agt.mechanisms.weights import noise_scale
from agt.models.features import FeatureMap
from agt.numeric import UP
from agt.relations import RELATIONS
from agt.settings import ErmConfig, certificate_config
from agt_cli.report.report_md import ball, guarantee
from agt_cli.runs.queries import LINES
from agt_cli.verify.budget import NOT_AGTS, Made, guarantee_among, tuned, within
from agt_cli.verify.labels import name_of, read_labels
from agt_cli.verify.record import Record
from agt_cli.verify.release import ARRAYS, CLAIM, check_lattice
from agt_cli.verify.removal import check_budget
from agt_cli.verify.requests import check_requests, erased_words

UNFIXED = "of these answers together: no guarantee, as how many there would be was not fixed before the first was drawn"
KEPT = "answers that were released earlier, or that weights released earlier give: they spend nothing more"


def claims_of(record: Record, trained: Record | None) -> tuple[str, ...]:
    """Look at what its command has beside every other's; returns what is certified or guaranteed, a line each.

    Args:
        trained: the run that it was made from; None: it has none, or that is not there.
    """
    if trained is not None and trained.conditions and record.conditions:
        with record.findings.looking("conditions"):
            _check_no_better(record, trained)
    if trained is not None and trained.command == "train":
        with record.findings.looking("data digest"):
            _check_same_data(record, trained)
    if record.bound.holds("released_weights.json"):
        with record.findings.looking("noise"):
            _check_weights(record, trained)
    if record.command == "train":
        _check_training(record)
        check_budget(record)
        check_requests(record)
        return *_claims_of_training(record), *erased_words(record)
    if record.command == "tune" and record.spent:
        return _check_tuned(record)
    if record.command == "predict":
        with record.findings.looking("labels"):
            _check_labels(record, trained)
        return _check_release(record, trained) if record.spent else _check_kept(record)
    if record.command == "audit":
        return _check_audit(record)
    return _claims_of_training(trained) if trained is not None else ()


def _check_audit(record: Record) -> tuple[str, ...]:
    """An audit against its own record, and the state of the run that it names; returns what it found, a line each."""
    with record.findings.looking(AUDIT):
        audit = read_audit(record.bound.read(AUDIT))
        named = record.environment.get("trained_digest")
        if audit.digest not in (None, named):
            raise Broken(f"{AUDIT} is about a run of {audit.digest}, and env.json names {named}")
        counts = {"findings": len(audit.findings), "violations": len(audit.violations)}
        wrong = [key for key, number in counts.items() if record.metrics.get(key) != number]
        if wrong:
            raise Broken(f"metrics.json says {wrong[0]} = {record.metrics.get(wrong[0])}, {AUDIT} has {counts[wrong[0]]}")
        record.findings.ok(AUDIT, f"{audit.schema}: it does not contradict itself")
        return tuple(f"{finding.subject}: {finding.outcome}: {finding.meaning}" for finding in audit.findings)
    return ()


def _check_no_better(record: Record, trained: Record) -> None:
    """Conditions do not get better on the way from a training run to what is made from it."""
    for then, now in zip(trained.conditions, record.conditions, strict=True):
        if then.standing.weaker(now.standing):
            raise Broken(f"condition {now.letter} stands better here than in the training run that it comes from")


def _check_same_data(record: Record, trained: Record) -> None:
    """What is made from a training run names its data."""
    for key in ("dataset", "data_digest", "features_digest"):
        ours, theirs = (each.environment.get(key) for each in (record, trained))
        if ours != theirs:
            raise Broken(f"env.json says {key} = {ours}, and the training run {theirs}")


# -- training --------------------------------------------------------------------------------------------------------------


def _claims_of_training(record: Record) -> tuple[str, ...]:
    """What certificates of a training run are about, and whether a guarantee may rest on them."""
    if record.relation is None or not record.conditions:
        return ()
    return f"k counts {ball(record.relation)} (relation {record.relation.name})", guarantee(record.conditions)


def _check_training(record: Record) -> None:
    """Condition g is its relation's; what its noise gives away is what its settings ask for."""
    findings, relation = record.findings, record.relation
    if relation is not None and record.conditions:
        holds = record.conditions[-1].held == RELATIONS[relation.name].symmetric
        wrong = f"condition g is recorded otherwise than relation={relation.name} makes it"
        findings.compare("relation", holds, neighbours_of(relation), wrong)
    if record.spent:
        noise = record.config["noise"]
        words = f"({float(noise['epsilon']):g}, {float(noise['delta']):g})-differentially private"
        holds = record.spent["guarantee"] == words and record.spent["simulated"] == (noise["seed"] is not None)
        findings.compare("budget", holds, f"the noise in training: {words}", "spent.json is not what noise.* asks for")


# -- releases --------------------------------------------------------------------------------------------------------------


def _check_release(record: Record, trained: Record | None) -> tuple[str, ...]:
    """The budget of a release, worked out again; returns what may be claimed, a line each.

    Args:
        trained: the run that it was made from; None: it is not there, or not what it was.
    """
    findings, spent, made = record.findings, record.spent, None
    with findings.looking("training run"):
        named = record.environment.get("trained_digest") if record.environment.get("trained_run") else None
        if spent["trained_digest"] != named:
            raise Broken(f"spent.json and env.json name two: {spent['trained_digest']} and {named}")
    with findings.looking("budget"):
        made = Made.of(record.config, record.metrics)
        if made is None:
            findings.unchecked("budget", NOT_AGTS)
        elif (made.name, str(made.guarantee)) != (spent["mechanism"], spent["guarantee"]):
            said = f"{spent['mechanism']}, {spent['guarantee']}"
            raise Broken(f"spent.json says {said}; the mechanism and its parameters make it {made.name}, {made.guarantee}")
        elif beyond := within(made.guarantee, spent["queries"] if spent["what"] == "labels" else 1, record.config["total"]):
            raise Broken(f"more was spent than asked for: {beyond}")
    simulated = _is_simulated(record, record.config.get("seed"))
    claimed = _read_claim(record, simulated)
    if made is None or trained is None or trained.relation is None:
        findings.unchecked("claim", "what it rests on is in the training run, which could not be looked at as it was then")
        return claimed.words if claimed else (str(spent.get("guarantee")), *map(str, spent.get("totals", ())))
    with findings.looking("claim"):
        granted = made.claim(record.conditions, trained.relation, trained.members, record.config, spent["what"])
        totals = made.spent(granted, spent["queries"], float(record.config["total"].get("delta") or 0.0))
        proved = granted.proved and not simulated
        if record.metrics.get("proved") != int(proved):
            raise Broken(f"metrics.json says proved = {record.metrics.get('proved')}, the conditions grant {int(proved)}")
        same = claimed is None or (claimed.neighbours.words, claimed.declared) == (
            neighbours_of(granted.relation),
            granted.declared,
        )
        if not same:
            raise Broken("claim.json claims it for other neighbours, or on other declarations, than the conditions grant")
        return _granted(record, granted, totals)
    return ()


def _check_kept(record: Record) -> tuple[str, ...]:
    """Nothing was spent only where weights released earlier answer, or a ledger's stored answers do."""
    config, answered, stored = record.config, record.metrics.get("answered"), record.metrics.get("stored")
    if config.get("release") or (config.get("mechanism") or {}).get("weights"):
        return (KEPT,)
    if type(stored) is not int or stored != answered:
        wrong = "no spent.json says what these answers spend, and neither a ledger nor weights released earlier gave them"
        record.findings.problem("budget", wrong)
        return ()
    record.findings.ok("budget", f"all {stored} were stored in a ledger, it says, and spent when they were drawn")
    return (KEPT,)


def _read_claim(record: Record, simulated: bool) -> Statement | None:
    """The claim for programs, whose every number is worked out again as it is read; None: there is none.

    It says what the record beside it does.
    """
    if not record.bound.holds(CLAIM):
        return None
    with record.findings.looking(CLAIM):
        record.bound.json(CLAIM)  # no key twice
        claimed, spent = read_claim(record.bound.read(CLAIM)), record.spent
        account, ledger = claimed.account, spent.get("ledger") or {}
        pairs = {
            "guarantee": (str(claimed.guarantee.value), spent["guarantee"]),
            "mechanism": (claimed.mechanism, spent["mechanism"]),
            "releases": (claimed.releases, spent["queries"] if spent["what"] == Output.LABELS else 1),
            "simulated": (claimed.simulated, simulated),
            "proved": (claimed.publishable, bool(record.metrics.get("proved"))),
            "entry": (account and account.entry, ledger.get("entry")),
            "population": (account and account.population, ledger.get("population")),
        }
        for name, (ours, theirs) in pairs.items():
            if ours != theirs:
                raise Broken(f"{CLAIM} says {name} = {ours}, and the record beside it {theirs}")
        record.findings.ok(
            CLAIM, f"{claimed.schema}: says what the record does; its totals and curve are not below the truth"
        )
        return claimed
    return None


def _check_tuned(record: Record) -> tuple[str, ...]:
    """The same of weights from private tuning."""
    findings, config = record.findings, record.config
    _is_simulated(record, config["tune"].get("seed"))
    with findings.looking("claim"):
        mechanism = tuned(config)
        if record.relation is None:
            raise Broken("config.yaml names no relation")
        granted = claim(record.conditions, record.relation, mechanism, output=Output.WEIGHTS)
        return _granted(record, granted, (f"in all: {mechanism.guarantee}",))
    return ()


def _granted(record: Record, granted: Claim, totals: tuple[str, ...]) -> tuple[str, ...]:
    """What is granted today is what was recorded then."""
    spent = record.spent
    if totals != tuple(spent["totals"]) or str(granted.guarantee) != spent["guarantee"]:
        said = "; ".join(map(str, (spent["guarantee"], *spent["totals"])))
        raise Broken(f"spent.json says {said}, and it comes to {granted.guarantee}; {'; '.join(totals)}")
    record.findings.ok("claim", f"worked out again from mechanism, count and conditions: {granted.text}")
    record.findings.ok("budget", f"worked out again: {'; '.join(totals)}")
    return granted.text, *((UNFIXED,) if record.config.get("inputs") == str(LINES) else totals)


def _is_simulated(record: Record, seed: object) -> bool:
    """Whether the draws came from a seed; every file must agree."""
    simulated, findings = seed is not None, record.findings
    if record.spent.get("simulated") is not simulated or record.metrics.get("simulated") != int(simulated):
        findings.problem("draws", "config.yaml, spent.json and metrics.json do not agree on whether it is a simulation")
    elif simulated:
        findings.note("draws", "a SIMULATION: they come from a seed, and guarantee nothing")
    return simulated


def _check_labels(record: Record, trained: Record | None) -> None:
    """As many labels as were counted, each of them one of the classes."""
    name = name_of(record)
    if name is None:
        return
    answered, left = (record.metrics.get(key) for key in ("answered", "unanswered"))
    if answered is not None and answered + left != record.metrics["n_queries"]:
        raise Broken(f"metrics.json counts {answered} answered and {left} not, of {record.metrics['n_queries']}")
    count = record.metrics.get("answered", record.metrics.get("n_queries"))  # a budget may end in the middle of a file
    rows, labels = read_labels(record, name, int(count or 0))
    if rows != count:
        raise Broken(f"{name} holds {rows} rows, and {count} labels were counted")
    classes = _classes(trained)
    unknown = sorted(labels - classes) if classes else []
    if unknown:
        raise Broken(f"{name} holds the label {unknown[0]!r}, which is no class of the training run")
    record.findings.ok("labels", f"{rows}, as many as were counted{', each one of the classes' if classes else ''}")


def _classes(trained: Record | None) -> set[str]:
    """The classes of a training run; empty: not known."""
    if trained is None or not trained.bound.holds("source.json"):
        return set()
    return set(map(str, trained.bound.json("source.json")["names"]))


def _check_weights(record: Record, trained: Record | None) -> None:
    """Released weights lie on their lattice; their noise is what one record moves them by, over mu."""
    noise = record.bound.json("released_weights.json")
    try:
        weight = load(record.bound.read("released_weights.safetensors", ARRAYS))["weight"]
    except SafetensorError as error:
        raise Broken(f"released_weights.safetensors cannot be read ({error})") from None
    check_lattice(weight, noise, record.findings)
    if trained is None or not trained.bound.holds("stability.json"):
        return
    constants, budget = trained.bound.json("stability.json"), guarantee_among(noise)
    if any(record.metrics.get(key) != number for key, number in budget.parameters.items()):
        raise Broken(f"released_weights.json is of {budget}, metrics.json of another guarantee")
    if isinstance(budget, ApproximateDP):
        record.findings.ok("noise", _objective_noise(record, trained, weight.shape[1], budget))
        return
    moves = float(constants["sensitivity"])
    sigma = noise_scale(moves, budget) if isinstance(budget, GaussianDP) else None
    if noise["sigma"] != sigma:
        raise Broken(f"sigma = {noise['sigma']!r} was recorded; {moves!r} over mu makes it {sigma!r}")
    record.findings.ok("noise", f"sigma = {sigma:.6g}: what one record moves the weights by ({moves:.6g}), over mu")


def _objective_noise(record: Record, trained: Record, width: int, budget: ApproximateDP) -> str:
    """Both noises of objective perturbation, worked out again from the training run's public constants; in words."""
    constants, metrics, config = trained.bound.json("stability.json"), trained.metrics, trained.config
    own = constants.get("recipe.weight_decay", config["training"]["weight_decay"])
    decay = record.config["mechanism"].get("weight_decay") or own
    certificate = certificate_config(config["certificate"])
    if not isinstance(certificate, ErmConfig):
        raise Broken(f"objective perturbation of certificate={certificate.name}, which has no minimiser")
    slack = FeatureMap.blank(certificate.features, width - 1).slack
    shape = Shape(float(decay) * metrics["normalizer"], float(constants["reach"]), metrics["n_max"], width, slack)
    noises, noise = Noises.of(shape, budget.eps, budget.delta), record.bound.json("released_weights.json")
    right = ((noise["tilt"], noises.tilt), (noise["sigma"], noises.scale))
    if not all(math.isclose(told, made, rel_tol=UP) for told, made in right):  # special functions: not to the last bit
        raise Broken(f"tilt = {noise['tilt']!r} and sigma = {noise['sigma']!r} were recorded; the constants make {noises}")
    return (
        f"tilt = {noises.tilt:.6g} at Lambda = {shape.strength:.6g}, C = {shape.clamp:g}, and sigma = {noises.scale:.6g} "
        f"for a gradient of at most {noises.tolerance:.3g} that the solver may leave: worked out again"
    )
