"""What a release says of its budget, its labels and its weights, made again from what it rests on, and compared.

Formal guarantees
    Nothing that a record says of its budget is taken from its text: the guarantee of one answer is made from the
    mechanism's parameters, the totals by agt/mechanisms/composition.py from that guarantee and the
    number of answers, and whether it may be claimed at all by agt/mechanisms/claims.py from the
    conditions as recorded. What differs from the record is a problem, whichever of the two is
    larger. What is not shown: that the draws were made with those parameters.

A claim is a function of the training run's model, the mechanism's settings, the counts and the account that it names. Words
are those of one version of agt. Nothing of somebody else's code is loaded.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from agt import __version__
from agt.certificates.conditions import weaker
from agt.mechanisms.claims import (
    APART,
    NO_ACCOUNT,
    Claim,
    Claimable,
    Labelling,
    Output,
    Release,
    Statement,
    claim,
    neighbours_of,
    of_release,
    prepare_quantile,
    read_claim,
    totals_of,
    weights_total,
)
from agt.mechanisms.composition import total
from agt.mechanisms.guarantees import GaussianDP, Guarantee, PureDP, guarantee_of
from agt.mechanisms.measurement import Measurement
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import MechanismConfig, TotalConfig
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.models.model import Model
from agt.models.portable import RELEASE, Portable
from agt.numeric import step_of
from agt.settings import RelationConfig, plain_of, validate
from agt.store import MAX_TEXT_BYTES, Broken, parse_yaml
from agt.targets import is_own_code
from agt_cli.releasing.ledgers import NO_LEDGER
from agt_cli.releasing.payer import OUTSIDE_LEDGERS, UNNAMED, account_words
from agt_cli.report.markdown import Findings
from agt_cli.verify.folders import Record, first_difference
from agt_cli.verify.pages import CLAIM_FILE, LABEL_FILES, WEIGHTS_FILE, by_lines, open_parquet

LABEL_COLUMNS = ["record_id", "label"]
DATASET_FILE = "dataset.yaml"
MAX_CLASSES = 10_000
PRICE = "the settings are one of "  # weights that an earlier version tuned privately: their guarantee is the total
UNFIXED = "of these answers together: no guarantee, as how many there would be was not fixed before the first was drawn"
_TOTAL = re.compile(r"\((?P<eps>[\d.e+-]+), (?P<delta>[\d.e+-]+)\)-differentially private in all")
FREE = "answers that were released earlier, or that weights released earlier give: they spend nothing more"
_KINDS = {("eps",): "pure", ("eps", "delta"): "approximate", ("mu",): "gaussian"}


def guarantee_among(parameters: Mapping[str, Any]) -> Guarantee:
    """The guarantee with these parameters, among others that are none. Raises KeyError, ConfigError: there is none."""
    keys = tuple(key for key in ("eps", "delta", "mu") if parameters.get(key) is not None)
    return guarantee_of({"kind": _KINDS[keys], **{key: parameters[key] for key in keys}})


def measurement(config: Mapping[str, Any]) -> Measurement:
    """The mechanism with the settings of ``agt measure``."""
    relation: RelationConfig = validate(RelationConfig, config["relation"], "relation")
    return Measurement(float(config["total"]["eps"]), float(config["total"]["delta"]), relation)


def asked_of(record: Record) -> MechanismConfig:
    """The mechanism and the total that the settings of a release ask for."""
    return MechanismConfig.of(record.config["mechanism"], validate(TotalConfig, record.config.get("total"), "total"))


def check_release(record: Record, trained: Record | None) -> tuple[str, ...]:
    """The budget of a release and its claim, made again; returns what may be claimed, a line each."""
    findings, claimed, model = record.findings, None, None if trained is None else trained.rebuilt_model
    if not record.spent:
        return _check_free(record)
    simulated = _is_simulated(record, record.config.get("seed"))
    if record.holds(CLAIM_FILE):
        with findings.looking(CLAIM_FILE):
            claimed = _read_claim(record, simulated)
    if model is None:
        findings.unchecked("claim", "what it rests on is in the training run, which could not be looked at as it was then")
    with findings.looking("budget" if model is None else "claim"):
        release, name = _derive_release(record, model, claimed, simulated)
        text, proved = release.claim.text, release.claim.proved
        if claimed is not None and (model is not None or proved or claimed.proved):
            _compare_claim(claimed, release, name, record)
        if model is not None:
            findings.ok("claim", f"made again from model, mechanism, counts and account: {text}")
        elif claimed is None:
            text = str(release.claim.guarantee)
        return (text, *((UNFIXED,) if by_lines(record) else release.spent)) if proved or model is not None else ()
    return ()


def _derive_release(
    record: Record, model: Model | None, claimed: Statement | None, simulated: bool
) -> tuple[Release[Any], str]:
    """(the release, its mechanism's name), judged as agt predict judges it; spent.json and metrics.json say the same.

    Args:
        model: that it was made from; None: it is not there, and what of it counts is taken from the claim.

    Raises:
        Broken: a file says something else, or more was spent than was asked for.
    """
    asked, size, lines = asked_of(record), int(record.spent["queries"]), by_lines(record)
    delta, count = asked.total.delta, (asked.total.queries or 1) if lines else int(record.metrics.get("n_queries", 1))
    classes = 2 if model is None else model.problem.classes  # a guarantee is the same for any number of classes
    mechanism = asked.mechanism(classes, count)
    granted, noisy = _granted(record, model, mechanism, claimed)
    output, each = granted.output, mechanism.guarantee
    totals = totals_of(each, size, delta) if output is Output.LABELS else ()
    totals = (weights_total(each, delta),) if output is Output.WEIGHTS else totals
    if asked.total.eps is not None:
        within = total(each, size if output is Output.LABELS else 1, delta)
        # One number is exactly what it is; totals are rounded upwards.
        spent = each.eps if output is Output.NUMBER and isinstance(each, PureDP) else within.eps
        if spent > asked.total.eps:
            raise Broken(f"more was spent than asked for: {within} against total.eps={asked.total.eps:g}")
    release: Release[Any] = Release(granted, _draw_nothing, totals, None if output is Output.WEIGHTS else size, noisy)
    if output is Output.LABELS and (lines or not record.spent.get("ledger")):
        record.check_metrics("spent.json", **{"reserved" if lines else "n_queries": size})
    proved, metrics = granted.proved and not simulated, {"simulated": int(simulated), **granted.guarantee.parameters}
    if model is not None or record.metrics.get("proved"):
        metrics["proved"] = int(proved)
    record.check_metrics("config.yaml", **metrics)
    _compare_spent(record, release, mechanism.name, simulated)
    return release, mechanism.name


def _granted(record: Record, model: Model | None, mechanism: Claimable, claimed: Statement | None) -> tuple[Claim, bool]:
    """What may be claimed of a release, and whether training drew noise.

    Between which datasets is in the training run alone; where that is away, the claim's word is taken for it.
    """
    config, conditions = record.config, record.conditions
    rules = {"accounting": config.get("accounting", "rigorous"), "counting": config.get("counting", "distance")}
    relation, noisy = RelationConfig("add_remove"), False
    if model is not None:
        relation, noisy = model.problem.settings.relation, model.problem.settings.noise is not None
    elif claimed is not None:
        relation = RelationConfig(claimed.neighbours.relation, unit_rows=claimed.neighbours.unit_rows)
        noisy = any(APART in line for line in claimed.words)
    if model is None and isinstance(mechanism, Mechanism | CertifiedQuantile):
        output = Output.LABELS if isinstance(mechanism, Mechanism) else Output.NUMBER
        return claim(conditions, relation, mechanism, **rules, output=output), noisy
    if model is not None and isinstance(mechanism, Mechanism):
        return Labelling.of(model, mechanism, conditions, **rules).claim, noisy
    if model is not None and isinstance(mechanism, CertifiedQuantile):
        nothing = model.problem.dataset.train.features[:0]
        return prepare_quantile(model, nothing, mechanism, conditions=conditions, **rules).claim, noisy
    if model is not None:
        head = cast(WeightsMechanism, mechanism).head_of(model)
        conditions = weaker(conditions, head.conditions)
    return claim(conditions, relation, mechanism, output=Output.WEIGHTS), noisy


def _compare_spent(record: Record, release: Release[Any], mechanism: str, simulated: bool) -> None:
    """Raise Broken unless spent.json says what the release comes to."""
    derived = {
        "what": str(release.claim.output),
        "mechanism": mechanism,
        "guarantee": str(release.claim.guarantee),
        "totals": list(release.spent),
        "simulated": simulated,
        "dataset": record.environment.get("dataset"),
    }
    if "trained_digest" in record.spent or record.command == "predict":
        derived["trained_digest"] = (
            record.environment.get("trained_digest") if record.environment.get("trained_run") else None
        )
    if difference := first_difference({key: record.spent.get(key) for key in derived}, derived):
        raise Broken(f"spent.json is not what this release comes to: {difference}")
    record.findings.ok("budget", f"worked out again: {'; '.join(release.spent)}")


def _draw_nothing(_: object) -> None:
    raise RuntimeError("nothing is drawn by an audit")


def _read_claim(record: Record, simulated: bool) -> Statement:
    """It says what the files beside it do, whether or not the training run is there."""
    claimed, spent, status = read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES)), record.spent, record.status
    ledger, account = spent.get("ledger") or {}, claimed.account
    releases = int(spent["queries"]) if spent["what"] == Output.LABELS else 1
    said = {
        "guarantee": str(claimed.guarantee.value),
        "mechanism": claimed.mechanism,
        "releases": claimed.releases,
        "simulated": claimed.simulated,
        "ledger": None if account is None else [account.population, account.entry],
    }
    beside = {key: spent[key] for key in ("guarantee", "mechanism")} | {"releases": releases, "simulated": simulated}
    beside["ledger"] = [ledger.get("population"), ledger.get("entry")] if ledger else None
    if difference := first_difference(said, beside):
        raise Broken(f"{CLAIM_FILE} is not what the record beside it says: {difference}")
    if not str(status.get("started"))[:10] <= str(claimed.issued) <= str(status.get("ended"))[:10]:
        raise Broken(f"{CLAIM_FILE} was issued on {claimed.issued}, and the release ended {status.get('ended')}")
    record.findings.ok(CLAIM_FILE, f"{claimed.schema}: its totals and curve are not below the truth")
    return claimed


def _compare_claim(claimed: Statement, release: Release[Any], mechanism: str, record: Record) -> None:
    """Raise Broken unless a claim is the one that the release and its account make, what a ledger declares apart."""
    lines, account, simulated = by_lines(record), claimed.account, claimed.simulated
    words, counting = list(release.words(simulated, ())), record.config.get("counting", "distance")
    if lines:  # no total is theirs, and their words are those before the first
        most = (record.config.get("total") or {}).get("queries")
        delta = float((record.config.get("total") or {}).get("delta") or 0.0)
        totals = totals_of(release.claim.guarantee, int(most), delta) if most else ()
        words = list(replace(release, totals=totals, queries=most).words(simulated, ()))
    if account is not None:
        counted = "each answer is debited first" if lines else f"entry {account.entry} of it counts this"
        words += account_words(account, counted)[: 1 if lines else None]
    rest = claimed.words[len(words) :]  # what a ledger declares, or that there is none
    words += rest if account is not None or _says_no_ledger(rest) else ()
    derived = of_release(release, mechanism, words=words, counting=counting, simulated=simulated, account=account)
    compare_statements(claimed, replace(derived, totals=(), curve=None) if lines else derived)


def _says_no_ledger(words: tuple[str, ...]) -> bool:
    """Whether these lines are what a release says that no ledger counts."""
    if words in ((), NO_ACCOUNT, (f"{NO_ACCOUNT[0]}{UNNAMED}",)):
        return True
    before, after = OUTSIDE_LEDGERS.split("{}")
    return len(words) == 1 and words[0].startswith(before) and words[0].endswith(after)


def compare_statements(claimed: Statement, derived: Statement) -> None:
    """Raise Broken unless two claims are one, its day apart; of another version's words nothing is known."""
    derived = replace(derived, issued=claimed.issued)
    if claimed.agt != __version__:
        texts = ("agt", "words", "scope", "outside", "per", "declared", "reasons")
        derived = replace(derived, **{name: getattr(claimed, name) for name in texts})
    if derived.content != claimed.content and (difference := first_difference(plain_of(claimed), plain_of(derived))):
        raise Broken(f"{CLAIM_FILE} is not the claim of this release: {difference}")


def _check_free(record: Record) -> tuple[str, ...]:
    """Nothing was spent only where weights released earlier answer, or a ledger's stored answers do."""
    config, answered, stored = record.config, record.metrics.get("answered"), record.metrics.get("stored")
    if config.get("release") or (config.get("mechanism") or {}).get("weights"):
        return (FREE,)
    free = type(stored) is int and stored == answered
    free = free and (not answered or (config.get("ledger") != NO_LEDGER and config.get("seed") is None))
    right = f"all {stored} were stored in a ledger, it says, and spent when they were drawn"
    wrong = "no spent.json says what these answers spend, and neither a ledger nor weights released earlier gave them"
    record.findings.compare("budget", free, right, wrong)
    return (FREE,) if free else ()


def check_tuned(record: Record, trained: Record | None) -> tuple[str, ...]:
    """What private tuning of an earlier version released: nobody works its price out again."""
    if record.spent:
        version = record.environment.get("agt")
        record.findings.unchecked(
            "claim",
            f"private tuning by agt {version}, which later versions do not do: only that version "
            "works its budget out again",
        )
    return ()


def check_measured(record: Record, trained: Record | None) -> tuple[str, ...]:
    """What was measured of a table: its budget and claim, and the price that whoever trains with it is told."""
    with record.findings.looking(DATASET_FILE):
        noted = parse_yaml(record.read(DATASET_FILE, MAX_TEXT_BYTES), DATASET_FILE).get("measurement") or {}
        mechanism = measurement(record.config)
        if noted.get("claim") != (price := f"{mechanism.guarantee} for {neighbours_of(mechanism.relation)}"):
            raise Broken(f"{DATASET_FILE} says that it was measured for {noted.get('claim')}, and it was for {price}")
        record.findings.ok(DATASET_FILE, f"measured, as it says: {price}")
    if not record.spent:
        if record.holds(CLAIM_FILE):
            record.findings.problem("budget", f"{CLAIM_FILE} claims a release, and no spent.json says what it spends")
        return ()
    simulated = _is_simulated(record, None)
    with record.findings.looking("claim"):
        mechanism = measurement(record.config)
        if record.relation is None:
            raise Broken("config.yaml names no relation")
        granted = claim(record.conditions, record.relation, mechanism, output=Output.CONSTANTS)
        release = Release(granted, _draw_nothing, (), None, noisy=False)
        _compare_spent(record, release, Measurement.name, simulated)
        claimed = _read_claim(record, simulated)
        _compare_claim(claimed, release, Measurement.name, record)
        return granted.text, *release.spent
    return ()


def _is_simulated(record: Record, seed: object) -> bool:
    """Whether the draws came from a seed; every file must agree."""
    simulated, findings = seed is not None, record.findings
    if record.spent.get("simulated") is not simulated or record.metrics.get("simulated") != int(simulated):
        findings.problem("draws", "config.yaml, spent.json and metrics.json do not agree on whether it is a simulation")
    elif simulated:
        findings.note("draws", "a SIMULATION: they come from a seed, and guarantee nothing")
    return simulated


# -- labels and weights ----------------------------------------------------------------------------------------------------


def check_labels(record: Record, trained: Record | None) -> str | None:
    """As many labels as were counted, each of them one of the classes."""
    labels = labels_of(record)
    if labels is None:
        return None
    answered, left = (record.metrics.get(key) for key in ("answered", "unanswered"))
    if answered is not None and answered + left != record.metrics["n_queries"]:
        raise Broken(f"metrics.json counts {answered} answered and {left} not, of {record.metrics['n_queries']}")
    if len(labels) != (count := _counted(record)):
        raise Broken(f"the labels have {len(labels)} rows, and {count} labels were counted")
    classes = [] if trained is None else trained.classes
    unknown = sorted(set(pc.unique(labels).to_pylist()).difference(classes)) if classes else []
    if unknown:
        raise Broken(f"the labels hold {unknown[0]!r}, which is no class of the training run")
    return f"{count}, as many as were counted{', each one of the classes' if classes else ''}"


def _counted(record: Record) -> Any:
    """How many labels were counted: a budget may end in the middle of a file."""
    return record.metrics.get("answered", record.metrics.get("n_queries"))


def labels_of(record: Record) -> pa.DictionaryArray | None:
    """[n] the labels that were released, in their order, each class's name once; None: there are none.

    Raises:
        Broken: the table is none that agt writes, or a parquet file of other rows than were counted.
    """
    name = next((name for name in LABEL_FILES if record.holds(name)), None)
    if name is None:
        return None
    content, named = record.read(name), LABEL_COLUMNS[1:]
    try:
        if name == LABEL_FILES[0]:
            rows = csv.reader(TextIOWrapper(BytesIO(content), "utf-8", newline=""), strict=True)
            columns, labels = next(rows), pa.array((label for _, label in rows), pa.string()).dictionary_encode()
        else:  # a row that agt writes holds a name in plain, 4 bytes and its letters; Snappy unpacks 3 bytes to 64 at most
            file = open_parquet(content, named, _counted(record), 6)
            columns, table = file.schema_arrow.names, file.read(named).unify_dictionaries()
            labels = table.column(0).combine_chunks()
        if columns != LABEL_COLUMNS or len(labels.dictionary) > MAX_CLASSES or labels.null_count:
            raise ValueError(f"its columns are not {' and '.join(LABEL_COLUMNS)}, each label one of a few classes")
    except (csv.Error, ValueError, OSError, IndexError, StopIteration, pa.ArrowException) as error:
        raise Broken(f"{name} is no proper {name.split('.')[1]} ({error})") from None
    return labels


def check_weights(record: Record, trained: Record | None) -> str | None:
    """Released weights lie on their lattice; their noise is what their mechanism takes for this head."""
    if not record.holds(WEIGHTS_FILE):
        return None
    noise = record.json(WEIGHTS_FILE)
    try:
        weight = load_arrays(record.read("released_weights.safetensors"))["weight"]
    except SafetensorError as error:
        raise Broken(f"released_weights.safetensors cannot be read ({error})") from None
    _check_lattice(weight, noise, record.findings)
    head = None if trained is None or trained.rebuilt_model is None else trained.rebuilt_model.release_head
    if head is None:
        return None
    mechanism = cast(WeightsMechanism, asked_of(record).mechanism(head.problem.classes, 1))
    simulated, drawn = record.config.get("seed") is not None, mechanism.noise(head)
    derived = {**mechanism.guarantee.parameters, **drawn, "simulated": simulated}
    if difference := first_difference(noise, derived):
        raise Broken(f"{WEIGHTS_FILE} is not what the mechanism draws with: {difference}")
    return f"{', '.join(f'{name} = {value:.6g}' for name, value in drawn.items() if name != 'step')}: worked out again"


def _check_lattice(weight: np.ndarray, noise: Any, findings: Findings) -> None:
    """Released weights are multiples of a step that sigma alone decides: what is not was changed after the draw."""
    sigma, step = float(noise["sigma"]), float(noise["step"])
    if not (sigma > 0 and step == step_of(sigma)):
        raise Broken(f"step = {step!r} is not the one of sigma = {sigma!r}")
    if not np.isfinite(weight).all() or np.fmod(weight, step).any():
        raise Broken("a weight is no multiple of the step: it was not drawn so")
    findings.ok("weights", f"{weight.size}, all multiples of the step that sigma = {sigma:.6g} has")


def check_portable(record: Record) -> Portable | None:
    """Read a folder of released weights, and work out what can be; None: it is not readable."""
    findings = record.findings
    with findings.looking("release.json"):
        portable = Portable.read(record)
        findings.ok("release.json", f"of the form that agt writes: {len(portable.classes)} classes, {portable.name}")
        target = str(portable.source.get("_target_"))
        if not is_own_code(target):
            findings.note("code", f"its queries would be read by {target}, no part of agt; nothing of it was imported here")
        with findings.looking("noise"):
            _check_lattice(portable.weight, portable.noise, findings)
        record.look("budget", _check_words, portable)
        record.look(CLAIM_FILE, _check_portable_claim, portable)
        return portable
    return None


def _check_words(record: Record, portable: Portable) -> str:
    """The guarantee of the weights, and the total of it that their second line names at some delta."""
    guarantee, (first, second, *_) = guarantee_among(portable.noise), (*portable.words, "", "")
    if not first.startswith(f"the released weights are {guarantee} for "):
        raise Broken(f"its first words are no claim of {guarantee}: {first}")
    if second.startswith(PRICE) and not isinstance(guarantee, GaussianDP):
        return f"worked out again: {guarantee}"
    match = _TOTAL.search(second)
    if match is None:
        raise Broken(f"its second line is no total of {guarantee}: {second}")
    found = weights_total(guarantee, float(match["delta"]))
    if second != f"for any number of queries: {found}":
        raise Broken(f"its words say {second}; {guarantee} comes to {found}")
    return f"worked out again: {guarantee}; {second}"


def _check_portable_claim(record: Record, portable: Portable) -> str | None:
    """Its claim, made again from its own guarantee, relation and declarations: no training run is there to make it from."""
    if not record.holds(CLAIM_FILE):
        return None
    claimed, guarantee = read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES)), guarantee_among(portable.noise)
    if not claimed.publishable or claimed.guarantee.value != guarantee or claimed.issued is not None:
        raise Broken(f"{CLAIM_FILE} is of {claimed.guarantee.value}, {claimed.issued}, the weights of {guarantee}")
    if claimed.words != tuple(portable.words):
        raise Broken(f"{CLAIM_FILE} and {RELEASE} say it in other words")
    relation = RelationConfig(claimed.neighbours.relation, unit_rows=claimed.neighbours.unit_rows)
    granted = Claim(guarantee, relation, Output.WEIGHTS, claimed.accounting, (), claimed.declared)
    totals = tuple(weights_total(guarantee, each.delta) for each in claimed.totals)
    release, account = Release(granted, _draw_nothing, totals, None, noisy=False), claimed.account
    words = [granted.text, *claimed.words[1:]]
    if account is not None and claimed.agt == __version__:
        missing = set(account_words(account, f"entry {account.entry} of it counts this")) - set(words)
        if missing:
            raise Broken(f"{CLAIM_FILE} names an account that its words leave out: {missing.pop()}")
    made = of_release(release, portable.mechanism, words=words, counting=claimed.counting, account=account)
    compare_statements(claimed, replace(made, mechanism=claimed.mechanism))
    return f"{claimed.schema}: the same guarantee; its totals and curve are not below the truth"
