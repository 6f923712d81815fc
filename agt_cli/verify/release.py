"""What a run says that it guarantees, made again from its settings, conditions and counts, and compared with what it says.

Formal guarantees
    Nothing that a record says of its budget is taken from its text: the guarantee of one answer is made from the
    mechanism's parameters, the totals by composition.py from that guarantee and the number of answers, and whether it may
    be claimed at all by rigour.py from the conditions as recorded. What differs from the record is a problem, whichever of
    the two is larger. What is not shown: that the draws were made with those parameters.

A claim (claim.json) is a function of these and of the ledger's entry, so it is made again by what makes it, and every entry
of it is compared: its words, where the same version of agt wrote them. Only the day, and the ledger's account of the
entry (verification.py looks at that), are taken from it. Nothing of somebody else's code is loaded.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO, StringIO
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load

from agt import __version__
from agt.audit.findings import AUDIT_FILE, read_audit
from agt.mechanisms.claims import (
    Claim,
    Output,
    Release,
    Statement,
    Voting,
    claim,
    of_release,
    read_claim,
    totals_of,
    weights_total,
)
from agt.mechanisms.composition import ApproximateDP, GaussianDP, Guarantee, PureDP, Total, total
from agt.mechanisms.mechanism import Need
from agt.mechanisms.objective import Noises, ObjectivePerturbation, Shape
from agt.mechanisms.portable import RELEASE, WEIGHTS, Portable
from agt.mechanisms.published import MECHANISMS, CertifiedQuantile
from agt.mechanisms.tuning import Trials, TunedWeights
from agt.mechanisms.weights import ReleaseWeights, noise_scale
from agt.models.features import FeatureMap
from agt.numeric import UP, step_of
from agt.settings import RelationConfig, certificate_config, plain_of, validate
from agt.store import Broken
from agt_cli.report.markdown import Findings
from agt_cli.report.report_md import ball, guarantee
from agt_cli.runs.queries import LINES
from agt_cli.verify.erasure import check_budget, check_requests, erased_words
from agt_cli.verify.folders import Bound, Record, first_difference

CLAIM_FILE = "claim.json"
LABEL_FILES = ("labels.csv", "labels.parquet")
LABEL_COLUMNS = ["record_id", "label"]
DATA_KEYS = ("dataset", "data_digest", "features_digest")
MAX_LABEL_BYTES = 2**30
MAX_CLASSES = 10_000
MAX_ARRAY_BYTES = 2**30  # of all arrays together, unpacked
UNFIXED = "of these answers together: no guarantee, as how many there would be was not fixed before the first was drawn"
_TOTAL = re.compile(r"\((?P<eps>[\d.e+-]+), (?P<delta>[\d.e+-]+)\)-differentially private in all")
FREE = "answers that were released earlier, or that weights released earlier give: they spend nothing more"
NOT_AGTS = "the mechanism is none of agt's own, and no code from elsewhere is loaded to look at it"
KNOWN_MECHANISMS: dict[str, Any] = {
    **MECHANISMS,
    **{kind.name: kind for kind in (ReleaseWeights, ObjectivePerturbation, CertifiedQuantile)},
}


def claims_of(record: Record, trained: Record | None) -> tuple[str, ...]:
    """Look at what its command has beside every other's; returns what is certified or guaranteed, a line each.

    Args:
        trained: the run that it was made from; None: it has none, or that is not there.
    """
    if trained is not None:
        _check_descent(record, trained)
    if record.bound.holds("released_weights.json"):
        with record.findings.looking("noise"):
            _check_weights(record, trained)
    if record.command == "train":
        _check_noise(record)
        check_budget(record)
        check_requests(record)
        return *_certified(record), *erased_words(record)
    if record.command == "tune" and record.spent:
        return _check_tuned(record)
    if record.command == "predict":
        with record.findings.looking("labels"):
            _check_labels(record, trained)
        return _check_release(record, trained) if record.spent else _check_free(record)
    if record.command == "audit":
        return _check_audit(record)
    return _certified(trained) if trained is not None else ()


def _check_descent(record: Record, trained: Record) -> None:
    """What is made from a training run has its data, and conditions that did not get better on the way."""
    with record.findings.looking("conditions"):
        for then, now in zip(trained.conditions, record.conditions, strict=False):
            if then.standing.weaker(now.standing):
                raise Broken(f"condition {now.letter} stands better here than in the training run that it comes from")
    with record.findings.looking("data digest"):
        for key in DATA_KEYS if trained.command == "train" else ():
            ours, theirs = (each.environment.get(key) for each in (record, trained))
            if ours != theirs:
                raise Broken(f"env.json says {key} = {ours}, and the training run {theirs}")


def _check_audit(record: Record) -> tuple[str, ...]:
    """An audit against its own record, and the state of the run that it names; returns what it found, a line each."""
    with record.findings.looking(AUDIT_FILE):
        audit = read_audit(record.bound.read(AUDIT_FILE))
        named = record.environment.get("trained_digest")
        if audit.digest not in (None, named):
            raise Broken(f"{AUDIT_FILE} is about a run of {audit.digest}, and env.json names {named}")
        record.check_metrics(AUDIT_FILE, findings=len(audit.findings), violations=len(audit.violations))
        record.findings.ok(AUDIT_FILE, f"{audit.schema}: it does not contradict itself")
        return tuple(f"{finding.subject}: {finding.outcome}: {finding.meaning}" for finding in audit.findings)
    return ()


def _certified(record: Record) -> tuple[str, ...]:
    """What certificates of a training run are about, and whether a guarantee may rest on them."""
    if record.relation is None or not record.conditions:
        return ()
    return f"k counts {ball(record.relation)} (relation {record.relation.name})", guarantee(record.conditions)


def _check_noise(record: Record) -> None:
    """What a training's noise gives away is what its settings ask for."""
    if not record.spent:
        return
    with record.findings.looking("budget"):
        noise = record.config["noise"]
        words = f"({float(noise['epsilon']):g}, {float(noise['delta']):g})-differentially private"
        holds = (record.spent["guarantee"], record.spent["simulated"]) == (words, noise["seed"] is not None)
        record.findings.compare(
            "budget", holds, f"the noise in training: {words}", "spent.json is not what noise.* asks for"
        )


# -- releases --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownMechanism:
    """A mechanism as its claim is about it.

    Attributes:
        name: in tables.
        needs: what it rests on.
        guarantee: of one answer, of the number, or of the weights.
    """

    name: str
    needs: Need
    guarantee: Guarantee

    @classmethod
    def of(cls, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> "KnownMechanism | None":
        """From a record's settings, and the budget of one answer that its metrics name; None: it is none of agt's.

        Raises:
            Broken: the settings name another budget than the metrics.
        """
        node = config["mechanism"]
        kinds = (kind for kind in KNOWN_MECHANISMS.values() if f"{kind.__module__}.{kind.__qualname__}" == node["_target_"])
        kind = next(kinds, None)
        if kind is None:
            return None
        for key in ("eps", "delta", "mu"):
            if node.get(key) and float(node[key]) != metrics.get(key):
                raise Broken(f"config.yaml asks for mechanism.{key}={node[key]}, metrics.json says {metrics.get(key)}")
        return cls(kind.name, kind.needs, guarantee_among(metrics))


def guarantee_among(parameters: Mapping[str, Any]) -> Guarantee:
    """The guarantee with these parameters, among others that are none.

    Raises:
        Broken: they are no guarantee's.
    """
    numbers = {key: parameters[key] for key in ("eps", "delta", "mu") if parameters.get(key) is not None}
    kinds: dict[frozenset[str], type[Any]] = {
        frozenset({"eps"}): PureDP,
        frozenset({"eps", "delta"}): ApproximateDP,
        frozenset({"mu"}): GaussianDP,
    }
    kind = kinds.get(frozenset(numbers))
    if kind is None or not all(type(number) in (int, float) for number in numbers.values()):
        raise Broken(f"the budget of one answer is no guarantee's: {numbers}")
    made: Guarantee = kind(**{key: float(number) for key, number in numbers.items()})
    return made


def tuned(config: Mapping[str, Any]) -> TunedWeights:
    """Private tuning with the settings of ``agt tune``."""
    tune, budget = config["tune"], config["total"]
    trials: Trials = validate(Trials, tune["trials"], "tune.trials")
    return TunedWeights.of(trials, float(budget["eps"]), float(budget["delta"]), tune["public"] is None)


def _check_release(record: Record, trained: Record | None) -> tuple[str, ...]:
    """The budget of a release and its claim, made again; returns what may be claimed, a line each.

    Args:
        trained: the run that it was made from; None: it is not there, or not what it was.
    """
    findings, spent, config, mechanism = record.findings, record.spent, record.config, None
    with findings.looking("training run"):
        named = record.environment.get("trained_digest") if record.environment.get("trained_run") else None
        if spent["trained_digest"] != named:
            raise Broken(f"spent.json and env.json name two: {spent['trained_digest']} and {named}")
    with findings.looking("budget"):
        mechanism = KnownMechanism.of(config, record.metrics)
        if mechanism is None:
            findings.unchecked("budget", NOT_AGTS)
        elif (mechanism.name, str(mechanism.guarantee)) != (spent["mechanism"], spent["guarantee"]):
            said, right = f"{spent['mechanism']}, {spent['guarantee']}", f"{mechanism.name}, {mechanism.guarantee}"
            raise Broken(f"spent.json says {said}; the mechanism and its parameters make it {right}")
        elif (eps := config["total"].get("eps")) is not None:
            within = total(mechanism.guarantee, _releases(spent), float(config["total"].get("delta") or 0.0))
            if within.eps > float(eps):
                raise Broken(f"more was spent than asked for: {within} against total.eps={float(eps):g}")
    simulated, claimed = _is_simulated(record, config.get("seed")), None
    if record.bound.holds(CLAIM_FILE):
        with findings.looking(CLAIM_FILE):
            claimed = _read_claim(record, simulated)
    if mechanism is None or trained is None or trained.relation is None:
        findings.unchecked("claim", "what it rests on is in the training run, which could not be looked at as it was then")
        return claimed.words if claimed else (str(spent.get("guarantee")), *map(str, spent.get("totals", ())))
    with findings.looking("claim"):
        release = _derive(mechanism, record, trained, trained.relation)
        proved = release.claim.proved and not simulated
        record.check_metrics("the conditions", proved=int(proved), simulated=int(simulated))
        if claimed is not None:
            with findings.looking(CLAIM_FILE):
                _compare_claim(claimed, release, record)
        return _granted(record, release.claim, release.spent)
    return ()


def _releases(spent: Mapping[str, Any]) -> int:
    return int(spent["queries"]) if spent["what"] == Output.LABELS else 1


def _derive(mechanism: KnownMechanism, record: Record, trained: Record, relation: RelationConfig) -> Release[None]:
    """The release, as the conditions and the counts that were recorded make it; it draws nothing."""
    config, queries, output = record.config, int(record.spent["queries"]), Output(record.spent["what"])
    accounting, counting = config.get("accounting", "rigorous"), config.get("counting", "distance")
    published = accounting == "paper" and mechanism.needs == "distance"
    voting: Voting = "none" if trained.members < 2 else "published" if published else "certified"
    granted = claim(record.conditions, relation, mechanism, accounting, counting, voting, output)
    noisy = (trained.config.get("noise") or {}).get("epsilon") is not None
    delta = float(config["total"].get("delta") or 0.0)
    totals: tuple[Total, ...] = ()
    if output is Output.LABELS:
        totals = totals_of(mechanism.guarantee, queries, delta)
    elif output is Output.WEIGHTS:
        totals = (weights_total(mechanism.guarantee, delta),)
    return Release(granted, _draw_nothing, totals, None if output is Output.WEIGHTS else queries, noisy)


def _draw_nothing(_: object) -> None:
    raise RuntimeError("nothing is drawn by an audit")


def _read_claim(record: Record, simulated: bool) -> Statement:
    """It says what spent.json and metrics.json beside it do, whether or not the training run is there."""
    claimed, spent = read_claim(record.bound.read(CLAIM_FILE)), record.spent
    ledger = spent.get("ledger") or {}
    account = claimed.account and (claimed.account.population, claimed.account.entry)
    paid = ledger and (ledger.get("population"), ledger.get("entry"))
    beside = (spent["guarantee"], spent["mechanism"], _releases(spent), simulated, bool(record.metrics.get("proved")))
    guarantee, releases = str(claimed.guarantee.value), claimed.releases
    said = (guarantee, claimed.mechanism, releases, claimed.simulated, claimed.publishable)
    if said != beside or (account or None) != (paid or None):
        raise Broken(f"{CLAIM_FILE} says {said}, and the record beside it {beside}")
    record.findings.ok(CLAIM_FILE, f"{claimed.schema}: its totals and curve are not below the truth")
    return claimed


def _compare_claim(claimed: Statement, release: Release[None], record: Record) -> None:
    """Raise Broken unless a claim is the one that the release makes."""
    told = release.words(claimed.simulated, ())
    words = (*told, *claimed.words[len(told) :])  # and then what the account says
    lines = str(record.config.get("inputs")) == str(LINES)  # how many there would be was not fixed: no total is theirs
    derived = of_release(
        release,
        claimed.mechanism,
        words=(told[0], *claimed.words[1:]) if lines else words,
        counting=record.config.get("counting", "distance"),
        simulated=claimed.simulated,
        account=claimed.account,
    )
    _compare_statements(claimed, replace(derived, totals=(), curve=None) if lines else derived)


def _compare_statements(claimed: Statement, derived: Statement) -> None:
    derived = replace(derived, issued=claimed.issued)
    if claimed.agt != __version__:
        texts = {
            name: getattr(claimed, name) for name in ("agt", "words", "scope", "outside", "per", "declared", "reasons")
        }
        derived = replace(derived, **texts)
    if difference := first_difference(plain_of(claimed), plain_of(derived)):
        raise Broken(f"{CLAIM_FILE} is not the claim of this release: {difference}")


def _granted(record: Record, granted: Claim, totals: tuple[str, ...]) -> tuple[str, ...]:
    """What is granted today is what was recorded then."""
    spent = record.spent
    if totals != tuple(spent["totals"]) or str(granted.guarantee) != spent["guarantee"]:
        said = "; ".join(map(str, (spent["guarantee"], *spent["totals"])))
        raise Broken(f"spent.json says {said}, and it comes to {granted.guarantee}; {'; '.join(totals)}")
    record.findings.ok("claim", f"worked out again from mechanism, count and conditions: {granted.text}")
    record.findings.ok("budget", f"worked out again: {'; '.join(totals)}")
    return granted.text, *((UNFIXED,) if record.config.get("inputs") == str(LINES) else totals)


def _check_free(record: Record) -> tuple[str, ...]:
    """Nothing was spent only where weights released earlier answer, or a ledger's stored answers do."""
    config, answered, stored = record.config, record.metrics.get("answered"), record.metrics.get("stored")
    if config.get("release") or (config.get("mechanism") or {}).get("weights"):
        return (FREE,)
    free = type(stored) is int and stored == answered
    right = f"all {stored} were stored in a ledger, it says, and spent when they were drawn"
    wrong = "no spent.json says what these answers spend, and neither a ledger nor weights released earlier gave them"
    record.findings.compare("budget", free, right, wrong)
    return (FREE,) if free else ()


def _check_tuned(record: Record) -> tuple[str, ...]:
    """Weights from private tuning: their budget and claim."""
    _is_simulated(record, record.config["tune"].get("seed"))
    with record.findings.looking("claim"):
        mechanism = tuned(record.config)
        if record.relation is None:
            raise Broken("config.yaml names no relation")
        granted = claim(record.conditions, record.relation, mechanism, output=Output.WEIGHTS)
        return _granted(record, granted, (f"in all: {mechanism.guarantee}",))
    return ()


def _is_simulated(record: Record, seed: object) -> bool:
    """Whether the draws came from a seed; every file must agree."""
    simulated, findings = seed is not None, record.findings
    if record.spent.get("simulated") is not simulated or record.metrics.get("simulated") != int(simulated):
        findings.problem("draws", "config.yaml, spent.json and metrics.json do not agree on whether it is a simulation")
    elif simulated:
        findings.note("draws", "a SIMULATION: they come from a seed, and guarantee nothing")
    return simulated


# -- labels ----------------------------------------------------------------------------------------------------------------


def _check_labels(record: Record, trained: Record | None) -> None:
    """As many labels as were counted, each of them one of the classes."""
    name = _label_file(record)
    if name is None:
        return
    answered, left = (record.metrics.get(key) for key in ("answered", "unanswered"))
    if answered is not None and answered + left != record.metrics["n_queries"]:
        raise Broken(f"metrics.json counts {answered} answered and {left} not, of {record.metrics['n_queries']}")
    count = record.metrics.get("answered", record.metrics.get("n_queries"))  # a budget may end in the middle of a file
    rows, labels = read_labels(record.bound, name, int(count or 0))
    if rows != count:
        raise Broken(f"{name} holds {rows} rows, and {count} labels were counted")
    classes = _classes(trained)
    unknown = sorted(set(labels).difference(classes)) if classes else []
    if unknown:
        raise Broken(f"{name} holds the label {unknown[0]!r}, which is no class of the training run")
    record.findings.ok("labels", f"{rows}, as many as were counted{', each one of the classes' if classes else ''}")


def _label_file(record: Record) -> str | None:
    return next((name for name in LABEL_FILES if record.bound.holds(name)), None)


def _classes(trained: Record | None) -> list[str]:
    """The classes of a training run; empty: not known."""
    if trained is None or not trained.bound.holds("source.json"):
        return []
    return [str(name) for name in trained.bound.json("source.json")["names"]]


def label_counts(record: Record, trained: Record | None) -> dict[int, int]:
    """Index of a class -> how many released labels are of it; empty: there are none, or nobody knows the classes."""
    name, answered, names = _label_file(record), record.metrics.get("answered"), _classes(trained)
    if name is None or answered is None or not names:
        return {}
    _, labels = read_labels(record.bound, name, int(answered))
    return {names.index(label): count for label, count in labels.items()}


def read_labels(bound: Bound, name: str, count: int) -> tuple[int, Counter[str]]:
    """(the number of rows, label -> how many rows have it), of a table that anybody may have written.

    Args:
        count: so many rows there should be: of a parquet file that says otherwise, nothing else is read.

    Raises:
        Broken: it is no such table.
    """
    content, labels = bound.read(name, MAX_LABEL_BYTES), Counter[str]()
    try:
        if name == LABEL_FILES[0]:
            head, *cells = csv.reader(StringIO(content.decode(), newline=""), strict=True)
            rows, whole = len(cells), all(len(row) == len(LABEL_COLUMNS) for row in cells)
            labels.update(row[-1] for row in cells)
        else:
            file = pq.ParquetFile(pa.BufferReader(content))
            head, rows, whole = file.schema_arrow.names, int(file.metadata.num_rows), True
            for batch in file.iter_batches(columns=LABEL_COLUMNS[1:]) if rows == count else ():
                counts = pc.value_counts(batch.column(0)).to_pylist()
                labels.update({str(each["values"]): each["counts"] for each in counts})
                if len(labels) > MAX_CLASSES:
                    raise ValueError(f"more than {MAX_CLASSES:,} different labels")
        if head != LABEL_COLUMNS or not whole:
            raise ValueError(f"its columns are not {' and '.join(LABEL_COLUMNS)}")
    except (csv.Error, ValueError, OSError, IndexError, pa.ArrowException) as error:
        raise Broken(f"{name} is no proper {name.split('.')[1]} ({error})") from None
    return rows, labels


# -- weights ---------------------------------------------------------------------------------------------------------------


def _check_weights(record: Record, trained: Record | None) -> None:
    """Released weights lie on their lattice; their noise is what one record moves them by, over mu."""
    noise = record.bound.json("released_weights.json")
    try:
        weight = load(record.bound.read("released_weights.safetensors", MAX_ARRAY_BYTES))["weight"]
    except SafetensorError as error:
        raise Broken(f"released_weights.safetensors cannot be read ({error})") from None
    _check_lattice(weight, noise, record.findings)
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
    if not certificate.minimiser or certificate.removable:
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


def _check_lattice(weight: np.ndarray, noise: Any, findings: Findings) -> None:
    """Released weights are multiples of a step that sigma alone decides: what is not was changed after the draw."""
    sigma, step = float(noise["sigma"]), float(noise["step"])
    if not (sigma > 0 and step == step_of(sigma)):
        raise Broken(f"step = {step!r} is not the one of sigma = {sigma!r}")
    if not np.isfinite(weight).all() or np.fmod(weight, step).any():
        raise Broken("a weight is no multiple of the step: it was not drawn so")
    findings.ok("weights", f"{weight.size}, all multiples of the step that sigma = {sigma:.6g} has")


# -- a folder of released weights, as anybody may have it from anybody -----------------------------------------------------


def check_portable(bound: Bound, findings: Findings) -> Portable | None:
    """Read it, and work out what can be; None: it is not readable."""
    portable, target = None, ""
    with findings.looking("release.json"):
        bound.json(RELEASE)
        _check_unpacked(bound.read(WEIGHTS, MAX_ARRAY_BYTES))
        portable = Portable.open(bound.folder, bound.manifest.digest)
        target = str(portable.source.get("_target_"))
        findings.ok("release.json", f"of the form that agt writes: {len(portable.classes)} classes, {portable.name}")
    if portable is None or not target:
        return None
    if not target.startswith("agt."):
        findings.note("code", f"its queries would be read by {target}, no part of agt; nothing of it was imported here")
    with findings.looking("noise"):
        _check_lattice(portable.weight, portable.noise, findings)
    with findings.looking("budget"):
        _check_words(portable, findings)
    if bound.holds(CLAIM_FILE):
        with findings.looking(CLAIM_FILE):
            _check_portable_claim(portable, bound, findings)
    return portable


def _check_words(portable: Portable, findings: Findings) -> None:
    """The guarantee of the weights, and the total of it that their words name at some delta."""
    guarantee = guarantee_among(portable.noise)
    said = [match for line in portable.words if (match := _TOTAL.search(line))]
    if str(guarantee) not in portable.words[0]:
        raise Broken(f"its first words are no claim of {guarantee}: {portable.words[0]}")
    for match in said if isinstance(guarantee, GaussianDP) else ():
        found = total(guarantee, 1, float(match["delta"]))
        if f"{found.eps:.6g}" != match["eps"]:
            raise Broken(f"its words say {match[0]}; {guarantee} comes to {found}")
    findings.ok("budget", f"worked out again: {guarantee}{''.join(f', {match[0]}' for match in said)}")


def _check_portable_claim(portable: Portable, bound: Bound, findings: Findings) -> None:
    """Its claim, made again from its own guarantee, relation and declarations: no training run is there to make it from."""
    claimed = read_claim(bound.read(CLAIM_FILE))
    if not claimed.publishable or claimed.guarantee.value != guarantee_among(portable.noise):
        raise Broken(f"{CLAIM_FILE} is of {claimed.guarantee.value}, the weights of {guarantee_among(portable.noise)}")
    if claimed.words != tuple(portable.words):
        raise Broken(f"{CLAIM_FILE} and {RELEASE} say it in other words")
    relation = RelationConfig(claimed.neighbours.relation, unit_rows=claimed.neighbours.unit_rows)
    granted = Claim(claimed.guarantee.value, relation, Output.WEIGHTS, claimed.accounting, (), claimed.declared)
    totals = tuple(weights_total(granted.guarantee, each.delta) for each in claimed.totals)
    release = Release(granted, _draw_nothing, totals, None, noisy=False)
    words = (granted.text, *claimed.words[1:])
    made = of_release(release, claimed.mechanism, words=words, counting=claimed.counting, account=claimed.account)
    _compare_statements(claimed, made)
    findings.ok(CLAIM_FILE, f"{claimed.schema}: the same guarantee; its totals and curve are not below the truth")


def _check_unpacked(content: bytes) -> None:
    """Raise Broken where an npz would unpack to more than anybody's weights."""
    try:
        size = sum(entry.file_size for entry in ZipFile(BytesIO(content)).infolist())
    except BadZipFile as error:
        raise Broken(f"{WEIGHTS} is no npz ({error})") from None
    if size > MAX_ARRAY_BYTES:
        raise Broken(f"{WEIGHTS} would unpack to {size:,} bytes: it is not read")
