"""What a record says, made again by the functions that wrote it, from what it rests on, and compared.

Formal guarantees
    Nothing that a record says of its budget is taken from its text: the guarantee of one answer is made from the
    mechanism's parameters, the totals by composition.py from that guarantee and the number of answers, and whether it may
    be claimed at all by rigour.py from the conditions as recorded. What differs from the record is a problem, whichever of
    the two is larger. What is not shown: that the draws were made with those parameters.
    An account is compared, entry by entry, with the log of the run that it names; its guarantee is worked out again from
    the run's settings where agt has a formula for it; its signature is over its very bytes. What is not shown: that the
    model was computed as is said.
    A request log vouches for nothing by its words: its chain is followed from the first line, the state that its last entry
    names is worked out from the manifest, the states that gave way are those that env.json lists, in their order, and no
    record that was carried out is left in the index. A record that was made from a state which the run no longer has is
    known by the log alone: the digest that it names is the one that an entry replaced.

A training run's model is read as agt's own commands read it, with no data: conditions.json, the constants and the sizes in
metrics.json are functions of config.yaml and of what source.json has of the data. A claim is a function of that model, the
mechanism's settings, the counts and the account that it names; report.md of all of them. Words are those of one version of
agt. Nothing of somebody else's code is loaded.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import BytesIO, TextIOWrapper
from os.path import lexists
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from agt import __version__
from agt.audit.findings import AUDIT_FILE, read_audit
from agt.certificates.box import Certificates
from agt.errors import DataMissing
from agt.facts import Standing
from agt.mechanisms.claims import (
    APART,
    NO_ACCOUNT,
    Claim,
    Labelling,
    Output,
    Release,
    Statement,
    claim,
    of_release,
    prepare_quantile,
    read_claim,
    totals_of,
    weights_total,
)
from agt.mechanisms.composition import GaussianDP, Guarantee, guarantee_of, total
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.portable import RELEASE, Portable
from agt.mechanisms.published import CertifiedQuantile
from agt.mechanisms.tuning import Trials, TunedWeights
from agt.mechanisms.weights import ReleasedWeights, noise_scale
from agt.models.linear import NUMBERS
from agt.models.model import Model, load
from agt.models.store import as_json
from agt.numeric import step_of
from agt.problem import Settings
from agt.settings import RelationConfig, RemovalConfig, build, plain_of, validate
from agt.store import MAX_TEXT_BYTES, Broken, Manifest, parse_json, read_file
from agt.training.removal import removal_budget
from agt.unlearning import account as accounts, newton
from agt.unlearning.account import OUTSIDE, Account, Promise, Removal, read_account
from agt.unlearning.log import KEY_FILE, RECORD_INDEX_FILE, REQUEST_LOG_FILE, HashKey, Index, Log, as_words
from agt_cli.choices import naming
from agt_cli.releasing.ledgers import NO_LEDGER
from agt_cli.releasing.noise import REDRAWN, noise_words
from agt_cli.releasing.payer import OUTSIDE_LEDGERS, UNNAMED, account_words
from agt_cli.releasing.release import MechanismConfig, TotalConfig
from agt_cli.report.finished import ACCOUNT_FILE, check_not_replaced, home_of
from agt_cli.report.markdown import Findings, bullets, document, report_page, sections, standings
from agt_cli.report.report_md import (
    ball,
    conditions_section,
    counts_section,
    guarantee,
    metrics_table,
    publish_section,
    results_section,
    setting_section,
    table_metrics,
)
from agt_cli.runs.prepare import kept_head, run_without_records, settings_parts
from agt_cli.runs.queries import LINES
from agt_cli.unlearn.erasure import account_lines, account_markdown, derive_account
from agt_cli.verify.folders import SAME, Record, first_difference

CLAIM_FILE, WEIGHTS_FILE = "claim.json", "released_weights.json"
LABEL_FILES = ("labels.csv", "labels.parquet")
LABEL_COLUMNS = ["record_id", "label"]
DATA_KEYS = ("dataset", "data_digest", "features_digest")
MAX_CLASSES, MAX_STEPS, MAX_PAGE_BYTES = 10_000, 10**7, 2**20
PRICE = "the settings are one of "  # of weights that were chosen by private tuning: their guarantee is the total
UNFIXED = "of these answers together: no guarantee, as how many there would be was not fixed before the first was drawn"
_TOTAL = re.compile(r"\((?P<eps>[\d.e+-]+), (?P<delta>[\d.e+-]+)\)-differentially private in all")
FREE = "answers that were released earlier, or that weights released earlier give: they spend nothing more"
TITLES = {  # of report.md, by command
    "train": (
        *("What k counts", "How good it is, and for whom", "Results", "For the data owner", "The noisy weights"),
        *("Removing records later", "Can a privacy guarantee rest on this?", "Setting", "Next"),
    ),
    "certify": (
        *("What k counts", "Results", "How good it is, and for whom", "Figures", "Can a privacy guarantee rest on this?"),
        *("Least stable records", "Setting of the training run"),
        "For the data owner only: queries outside the public ranges (clipped to them) and lists (counted as other)",
    ),
    "plan": (
        *("Accuracy by total budget and number of queries", "How good it is, and for whom"),
        *("Can a privacy guarantee rest on this?", "Setting"),
    ),
    "predict": ("What is guaranteed", "What may be published", "Setting"),
    "tune": ("What is guaranteed", "What may be published", "Setting"),
}
_BESIDE_CLAIM = re.compile(  # what a release says of its files and counts, and of earlier attempts
    r"- (release: |no folder release: |answered \d|[\d.e-]+ of the queries are certified up to |weights released earlier "
    r"|an earlier attempt |\d+ labels were paid for |chosen: |experiment: |candidate: )"
)
NOT_AGTS = "the mechanism is none of agt's own, and no code from elsewhere is loaded to look at it"
OLDER = "written by agt {}, and this is {}: their words may differ"
_KINDS = {("eps",): "pure", ("eps", "delta"): "approximate", ("mu",): "gaussian"}


@dataclass(frozen=True)
class ModelRecord:
    """A training run with its model, as its record makes it.

    Attributes:
        record: of the run.
        model: without its data; None: it could not be made here.
    """

    record: Record
    model: Model | None

    @classmethod
    def of(cls, record: Record) -> "ModelRecord":
        """Read the model; whatever it is not as the record says is a problem."""
        with record.findings.looking("model"):
            model = _model_of(record)
            if model is not None:
                _check_model(record, model)
            return cls(record, model)
        return cls(record, None)

    @property
    def classes(self) -> list[str]:
        """Names of the labels; empty: not known."""
        return [] if self.model is None else [*self.model.problem.dataset.classes]


def _model_of(record: Record) -> Model | None:
    """The model, read by its kind's own reader; None: that cannot be done here, which is said."""
    config = {**record.config, "compute": {}}
    head, target = kept_head(record), str(config["model"].get("_target_"))
    if head is None and not target.startswith("agt.models."):
        record.findings.unchecked(
            "model", f"its head would be made by {target}, no part of agt; nothing of it was imported"
        )
        return None
    settings = Settings(model=head or build(config["model"], "model"), **settings_parts(config))
    if settings.training.by_recipe == () and settings.training.epochs * int(settings.training.batch.count) > MAX_STEPS:
        raise Broken(f"config.yaml asks for more than {MAX_STEPS:,} steps: it is not followed")
    chosen = naming(settings.choices, settings.training.chosen_from)
    kept = run_without_records(record, replace(settings, choices=chosen))
    if kept is None:
        record.findings.unchecked("model", "the run was made before runs kept what that takes (source.json)")
        return None
    with torch.device("meta") if settings.certificate.boxes else nullcontext():  # of a head its shapes are enough
        return load(kept.problem, record)


def _check_model(record: Record, model: Model) -> None:
    """Conditions, constants and sizes are what config.yaml makes them; what ``load`` compares it has compared."""
    now = [condition.as_json() for condition in model.conditions]
    if record.environment.get("agt") == __version__:
        then = parse_json(record.read("conditions.json", MAX_TEXT_BYTES), "conditions.json")
        for one, other in zip(then, parse_json(as_json(now), ""), strict=True):
            if difference := first_difference(one, other, f"condition {other['letter']}"):
                raise Broken(f"conditions.json is not what config.yaml makes it: {difference}")
    _check_not_better(record, model.conditions, "config.yaml makes it")
    plan, stepwise = model.plan, not model.problem.settings.certificate.minimiser
    sizes = {"normalizer": plan.normalizer, "n_max": plan.n_max, **({"steps": plan.steps} if stepwise else {})}
    record.check_metrics("config.yaml", **model.metrics, **sizes, classes=model.problem.classes)
    record.findings.ok("model", "conditions, constants and sizes are what config.yaml makes them")


def _check_not_better(record: Record, conditions: Any, source: str) -> None:
    """Raise Broken where a condition stands better in a record than in what it comes from, or lost what was declared."""
    for then, now in zip(conditions, record.conditions, strict=False):
        lost = set(then.grounds.declarations) - set(now.grounds.declarations)
        if then.standing.weaker(now.standing) or (lost and then.standing is now.standing):
            raise Broken(f"condition {now.letter} stands better here than {source}")


def claims_of(record: Record, trained: ModelRecord | None) -> tuple[str, ...]:
    """Look at what its command has beside every other's; returns what is certified or guaranteed, a line each.

    Args:
        trained: the training run that it was made from, or itself; None: it has none, or that is not there.
    """
    if trained is not None and trained.record is not record:
        _check_descent(record, trained.record)
    if record.holds("report.md"):
        with record.findings.looking("report"):
            _check_page(record, trained)
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
        if record.holds(WEIGHTS_FILE):
            with record.findings.looking("noise"):
                _check_weights(record, trained)
        return _check_release(record, trained) if record.spent else _check_free(record)
    if record.command == "audit":
        return _check_audit(record)
    if record.command == "certify":
        with record.findings.looking("certificates"):
            _check_certified(record, trained)
    return _certified(trained.record) if trained is not None else ()


def _check_descent(record: Record, trained: Record) -> None:
    """What is made from a training run has its data, and conditions that did not get better on the way."""
    with record.findings.looking("conditions"):
        _check_not_better(record, trained.conditions, "in the training run that it comes from")
    with record.findings.looking("data digest"):
        for key in DATA_KEYS if trained.command == "train" else ():
            ours, theirs = (each.environment.get(key) for each in (record, trained))
            if ours != theirs:
                raise Broken(f"env.json says {key} = {ours}, and the training run {theirs}")


def _check_page(record: Record, trained: ModelRecord | None) -> None:
    """report.md says what the other files do, and report.html what report.md does."""
    if (version := record.environment.get("agt")) != __version__:
        record.findings.unchecked("report", OLDER.format(version, __version__))
        return
    text, conditions = record.read("report.md", MAX_PAGE_BYTES).decode(), record.conditions
    blocks = conditions_section(conditions) if conditions else []
    relation = record.relation if trained is None else trained.record.relation
    blocks += counts_section(relation) if relation else []
    if record.command == "train":
        before = {name: value for name, value in record.metrics.items() if name != "noise_proved"}  # which came after it
        blocks += ["## Results", metrics_table(before), *_noise_section(record, trained)]
    if record.command == "certify":
        noisy = REDRAWN in text
        if trained is not None and trained.model is not None:
            noisy = trained.model.problem.settings.noise is not None
        blocks += results_section(_certified_table(record), REDRAWN if noisy else "")
    if record.holds(CLAIM_FILE):
        blocks += ["## What is guaranteed", bullets(read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES)).words)]
    if record.command == "predict":
        blocks += publish_section(_publishable(record))
    there, derived = sections(text), sections(document(*blocks, "## Setting", setting_section(record.config)))
    for title, body in derived.items():
        if title in there and not _is_section(title, there[title], body, record):
            raise Broken(f"report.md says something else below '{title}' than the record does")
    titles = {f"## {title}" for title in TITLES.get(record.command, ())}
    if titles and (strange := there.keys() - titles):
        raise Broken(f"report.md has a section that agt {record.command} does not write: {strange.pop()}")
    if conditions and standings(conditions) not in text:
        raise Broken("report.md says otherwise than conditions.json how each condition stands")
    page = report_page(text, lambda name: record.read(name) if record.holds(name) else None)
    if record.holds("report.html") and page.encode() != record.read("report.html"):
        raise Broken("report.html is not report.md")
    record.findings.ok("report", "report.md says what the other files do")


def _is_section(title: str, text: str, derived: str, record: Record) -> bool:
    """Whether a section of report.md is what other files make it, lines apart that no file has."""
    if title == "## What is guaranteed" and not by_lines(record):
        before, found, after = text.partition(derived)
        rest = (line for line in (*before.splitlines(), *after.splitlines()) if line)
        return bool(found) and all(_BESIDE_CLAIM.match(line) for line in rest)
    loose = ("## What is guaranteed", "## The noisy weights", "## Removing records later")
    waiting = title == "## Results" and "waiting" in record.metrics  # how many, and since when, is in the training run
    return derived in text if title in loose or waiting else derived == text


def _check_certified(record: Record, trained: ModelRecord | None) -> None:
    """Stable distances are those that metrics.json and the table count; of boxes, which may have gaps, at most those."""
    table = _certified_table(record)
    content, words = record.read("certificates.parquet"), ["label", "prediction"]
    try:
        file = _open_parquet(content, words, record.metrics["n_queries"], 64)
        rows, deferred = file.read(["stable_distance", *words]).to_pandas(), "answer" in file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise Broken(f"certificates.parquet is no proper parquet ({error})") from None
    stable, ks = rows["stable_distance"].to_numpy(np.int64), [int(k) for k in table["k"]]
    mean, median = float(stable.mean()), float(np.median(stable))
    record.check_metrics("certificates.parquet", stable_distance_mean=mean, stable_distance_median=median)
    labels = rows["label"].to_numpy() if "nominal_accuracy" in table and not deferred else None
    certified: Any = (stable >= k for k in ks)  # a row at a time: a table may have many
    made = Certificates(tuple(ks), record.metrics["relation"], rows["prediction"].to_numpy(), certified)
    exact = trained is not None and trained.model is not None and not trained.model.problem.settings.certificate.boxes
    for row, then in zip(made.table(labels), table.to_dict("records"), strict=True):
        right = then["certified_fraction"] >= row["certified_fraction"] - SAME
        if row["k"] and (not right or (exact and first_difference({name: then[name] for name in row}, row))):
            raise Broken(f"tables/certified.csv is not what certificates.parquet makes it at k = {row['k']}")
    record.findings.ok("certificates", "the table and metrics.json count the stable distances of certificates.parquet")


def _certified_table(record: Record) -> pd.DataFrame:
    """A certification's table. Raises Broken: metrics.json says something else."""
    content = record.read("tables/certified.csv", MAX_TEXT_BYTES)
    table = pd.read_csv(BytesIO(content))
    record.check_metrics("tables/certified.csv", **table_metrics(table))
    return table


def _noise_section(record: Record, trained: ModelRecord | None) -> list[str]:
    """What report.md says of noise in training, and of later removals, the account apart."""
    model = None if trained is None else trained.model
    if model is None:
        return []
    settings, noise = model.problem.settings, model.noise
    words = [*model.words, *(noise_words(settings, noise, model.conditions, ()) if noise else [])]
    title = "## Removing records later" if settings.certificate.removable else "## The noisy weights"
    return [title, bullets(words)] if words else []


def _publishable(record: Record) -> str | None:
    """What a release's page says may be published; None: nothing."""
    labels = next((name for name in LABEL_FILES if record.holds(name)), None)
    if record.environment.get("release"):
        return f"`{labels}`"
    if not record.metrics.get("proved"):
        return None
    if labels is None:
        return "The labels on standard output" if by_lines(record) else "That number"
    more = ", `released_weights.safetensors` and the folder `release`" if record.holds(WEIGHTS_FILE) else ""
    return f"`{labels}`{more}"


def by_lines(record: Record) -> bool:
    """Whether questions came line by line: how many there would be was not fixed before the first was drawn."""
    return str(record.config.get("inputs")) == str(LINES)


def _check_audit(record: Record) -> tuple[str, ...]:
    """An audit against its own record, and the state of the run that it names; returns what it found, a line each."""
    with record.findings.looking(AUDIT_FILE):
        audit = read_audit(record.read(AUDIT_FILE))
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


def guarantee_among(parameters: Mapping[str, Any]) -> Guarantee:
    """The guarantee with these parameters, among others that are none. Raises KeyError, ConfigError: there is none."""
    keys = tuple(key for key in ("eps", "delta", "mu") if parameters.get(key) is not None)
    return guarantee_of({"kind": _KINDS[keys], **{key: parameters[key] for key in keys}})


def tuned(config: Mapping[str, Any]) -> TunedWeights:
    """Private tuning with the settings of ``agt tune``."""
    tune, budget = config["tune"], config["total"]
    trials: Trials = validate(Trials, tune["trials"], "tune.trials")
    return TunedWeights.of(trials, float(budget["eps"]), float(budget["delta"]), tune["public"] is None)


def _check_release(record: Record, trained: ModelRecord | None) -> tuple[str, ...]:
    """The budget of a release and its claim, made again; returns what may be claimed, a line each."""
    findings, claimed = record.findings, None
    simulated = _is_simulated(record, record.config.get("seed"))
    if record.holds(CLAIM_FILE):
        with findings.looking(CLAIM_FILE):
            claimed = _read_claim(record, simulated)
    if not str(record.config["mechanism"]["_target_"]).startswith("agt.mechanisms."):
        findings.unchecked("budget", NOT_AGTS)
    elif trained is None or trained.model is None:
        findings.unchecked("claim", "what it rests on is in the training run, which could not be looked at as it was then")
        with findings.looking("budget"):
            return _check_alone(record, claimed, simulated)
    else:
        with findings.looking("claim"):
            release, name = _derive_release(record, trained.model, simulated)
            if claimed is not None:
                _compare_claim(claimed, release, name, record)
            findings.ok("claim", f"made again from model, mechanism, counts and account: {release.claim.text}")
            return release.claim.text, *((UNFIXED,) if by_lines(record) else release.spent)
    return ()


def _check_alone(record: Record, claimed: Statement | None, simulated: bool) -> tuple[str, ...]:
    """What a release comes to by its own files, of any model; returns what of it may be claimed, a line each.

    Raises:
        Broken: spent.json, metrics.json or the claim says something else, or more was spent than was asked for.
    """
    config, output = record.config, Output(record.spent["what"])
    asked = MechanismConfig.of(config["mechanism"], validate(TotalConfig, config.get("total"), "total"))
    size, delta = int(record.spent["queries"]), asked.total.delta
    count = (asked.total.queries or 1) if by_lines(record) else size
    mechanism = asked.mechanism(2, count)  # a guarantee is the same for any number of classes
    if asked.total.eps is not None:
        within = total(mechanism.guarantee, size if output is Output.LABELS else 1, delta)
        if within.eps > asked.total.eps:
            raise Broken(f"more was spent than asked for: {within} against total.eps={asked.total.eps:g}")
    relation, noisy, over = RelationConfig("add_remove"), False, None if output is Output.WEIGHTS else size
    if claimed is not None:  # between which datasets, and whether training drew noise, is in the training run alone
        relation = RelationConfig(claimed.neighbours.relation, unit_rows=claimed.neighbours.unit_rows)
        noisy = any(APART in line for line in claimed.words)
    rules = {"accounting": config.get("accounting", "rigorous"), "counting": config.get("counting", "distance")}
    granted = claim(record.conditions, relation, mechanism, **rules, output=output)
    totals = totals_of(mechanism.guarantee, size, delta) if output is Output.LABELS else ()
    if output is Output.WEIGHTS:
        totals = (weights_total(mechanism.guarantee, delta),)
    release: Release[Any] = Release(granted, _draw_nothing, totals, over, noisy)
    _compare_spent(record, release, mechanism.name, simulated)
    if record.metrics.get("proved") and (simulated or not granted.proved):
        raise Broken("metrics.json says that it is proved, and it is a simulation or a condition does not hold")
    if claimed is not None and (granted.proved or claimed.proved):
        _compare_claim(claimed, release, mechanism.name, record)
    text = granted.text if claimed is not None else str(mechanism.guarantee)
    return (text, *((UNFIXED,) if by_lines(record) else release.spent)) if granted.proved else ()


def _derive_release(record: Record, model: Model, simulated: bool) -> tuple[Release[Any], str]:
    """(the release, its mechanism's name), judged as agt predict judges it; spent.json and metrics.json say the same."""
    config, spent, conditions = record.config, record.spent, record.conditions
    asked = MechanismConfig.of(config["mechanism"], validate(TotalConfig, config.get("total"), "total"))
    count = (asked.total.queries or 1) if by_lines(record) else int(record.metrics.get("n_queries", 1))
    mechanism, delta = asked.mechanism(model.problem.classes, count), asked.total.delta
    rigour = {"accounting": config.get("accounting", "rigorous"), "counting": config.get("counting", "distance")}
    size, noisy = int(spent["queries"]), model.problem.settings.noise is not None
    release: Release[Any]
    if isinstance(mechanism, Mechanism):
        granted = Labelling.of(model, mechanism, conditions, **rigour).claim
        release = Release(granted, _draw_nothing, totals_of(mechanism.guarantee, size, delta), size, noisy)
        if not spent.get("ledger") and not by_lines(record):
            record.check_metrics("spent.json", n_queries=size)
        if by_lines(record):
            record.check_metrics("spent.json", reserved=size)
    elif isinstance(mechanism, CertifiedQuantile):
        nothing = model.problem.dataset.train.features[:0]
        release = replace(prepare_quantile(model, nothing, mechanism, conditions=conditions, **rigour), queries=size)
    else:
        granted = claim(conditions, model.problem.settings.relation, mechanism, output=Output.WEIGHTS)
        release = Release(granted, _draw_nothing, (weights_total(mechanism.guarantee, delta),), None, noisy)
    proved, guarantee = release.claim.proved and not simulated, release.claim.guarantee
    record.check_metrics("config.yaml", proved=int(proved), simulated=int(simulated), **guarantee.parameters)
    _compare_spent(record, release, mechanism.name, simulated)
    return release, mechanism.name


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
        derived["trained_digest"] = _source_digest(record)
    if difference := first_difference({key: record.spent.get(key) for key in derived}, derived):
        raise Broken(f"spent.json is not what this release comes to: {difference}")
    record.findings.ok("budget", f"worked out again: {'; '.join(release.spent)}")


def _source_digest(record: Record) -> Any:
    """Of the training run that env.json names; None: it names none."""
    return record.environment.get("trained_digest") if record.environment.get("trained_run") else None


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


def _check_tuned(record: Record) -> tuple[str, ...]:
    """Weights from private tuning: their budget and claim."""
    simulated = _is_simulated(record, record.config["tune"].get("seed"))
    with record.findings.looking("claim"):
        mechanism = tuned(record.config)
        if record.relation is None:
            raise Broken("config.yaml names no relation")
        granted = claim(record.conditions, record.relation, mechanism, output=Output.WEIGHTS)
        release = Release(granted, _draw_nothing, (), None, noisy=False)
        _compare_spent(record, release, "private tuning", simulated)
        claimed = _read_claim(record, simulated)
        words = [*release.words(simulated, ())[:1], *claimed.words[1:]]
        derived = of_release(release, "private tuning", words=words, simulated=simulated, account=claimed.account)
        compare_statements(claimed, derived)
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


def _check_labels(record: Record, trained: ModelRecord | None) -> None:
    """As many labels as were counted, each of them one of the classes."""
    labels = labels_of(record)
    if labels is None:
        return
    answered, left = (record.metrics.get(key) for key in ("answered", "unanswered"))
    if answered is not None and answered + left != record.metrics["n_queries"]:
        raise Broken(f"metrics.json counts {answered} answered and {left} not, of {record.metrics['n_queries']}")
    count = record.metrics.get("answered", record.metrics.get("n_queries"))  # a budget may end in the middle of a file
    if len(labels) != count:
        raise Broken(f"the labels have {len(labels)} rows, and {count} labels were counted")
    classes = [] if trained is None else trained.classes
    unknown = sorted(set(pc.unique(labels).to_pylist()).difference(classes)) if classes else []
    if unknown:
        raise Broken(f"the labels hold {unknown[0]!r}, which is no class of the training run")
    record.findings.ok("labels", f"{count}, as many as were counted{', each one of the classes' if classes else ''}")


def labels_of(record: Record) -> pa.DictionaryArray | None:
    """[n] the labels that were released, in their order; None: there are none.

    Raises:
        Broken: the table is none that agt writes, or a parquet file of other rows than were counted.
    """
    name = next((name for name in LABEL_FILES if record.holds(name)), None)
    if name is None:
        return None
    content = record.read(name)
    try:
        if name == LABEL_FILES[0]:
            rows = csv.reader(TextIOWrapper(BytesIO(content), "utf-8", newline=""), strict=True)
            return _named(next(rows), pa.array((_label(row) for row in rows), pa.string()).dictionary_encode())
        return _parquet_labels(content, record.metrics.get("answered", record.metrics.get("n_queries")))
    except (csv.Error, ValueError, OSError, IndexError, StopIteration, pa.ArrowException) as error:
        raise Broken(f"{name} is no proper {name.split('.')[1]} ({error})") from None


def _parquet_labels(content: bytes, count: object) -> pa.DictionaryArray:
    """The labels of a parquet file of ``count`` rows, in 4 bytes a row and each class's name once.

    A row that agt writes holds a name in plain, 4 bytes and its letters, and Snappy unpacks 3 bytes to 64 at most.
    """
    file = _open_parquet(content, LABEL_COLUMNS[1:], count, 6)
    rows = file.metadata.num_rows
    codes, places, start = np.empty(rows, np.int32), dict[str, int](), 0
    for batch in file.iter_batches(columns=LABEL_COLUMNS[1:]):
        part = _named(file.schema_arrow.names, batch.column(0))
        place = np.array([places.setdefault(word, len(places)) for word in part.dictionary.to_pylist()], np.int32)
        codes[start : start + len(part)] = place[part.indices.to_numpy()]
        start += len(part)
    labels = pa.DictionaryArray.from_arrays(codes[:start], pa.array(list(places), pa.string()))
    return _named(LABEL_COLUMNS, labels)


def _open_parquet(content: bytes, words: list[str], count: object, dense: int) -> pq.ParquetFile:
    """A table of ``count`` rows. Args: words: columns of few words; dense: rows that a byte of the file may hold, at most.

    Raises:
        ValueError: it is none that agt writes, or unpacks to more.
    """
    file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=words)
    heads, rows = file.metadata, file.metadata.num_rows
    columns = (heads.row_group(at).column(c) for at in range(heads.num_row_groups) for c in range(heads.num_columns))
    packed = any(column.compression not in ("SNAPPY", "UNCOMPRESSED") for column in columns)
    if rows != count or rows > dense * len(content) or packed:
        raise ValueError(
            f"{rows} rows in {len(content)} bytes, packed as agt does not, or not the {count} that were counted"
        )
    return file


def _named(columns: list[str], labels: Any) -> Any:
    if columns != LABEL_COLUMNS or len(labels.dictionary) > MAX_CLASSES or labels.null_count:
        raise ValueError(f"its columns are not {' and '.join(LABEL_COLUMNS)}, each label one of a few classes")
    return labels


def _label(row: list[str]) -> str:
    _, label = row
    return label


def _check_weights(record: Record, trained: ModelRecord | None) -> None:
    """Released weights lie on their lattice; their noise is what their mechanism takes for this head."""
    noise = record.json(WEIGHTS_FILE)
    try:
        weight = load_arrays(record.read("released_weights.safetensors"))["weight"]
    except SafetensorError as error:
        raise Broken(f"released_weights.safetensors cannot be read ({error})") from None
    _check_lattice(weight, noise, record.findings)
    head = None if trained is None or trained.model is None else trained.model.linear_head
    if head is None:
        return
    asked = MechanismConfig.of(record.config["mechanism"], validate(TotalConfig, record.config.get("total"), "total"))
    mechanism, budget = asked.mechanism(head.problem.classes, 1), guarantee_among(noise)
    sigma, tilt = noise_scale(head.moves, budget) if isinstance(budget, GaussianDP) else 0.0, 0.0
    if isinstance(mechanism, ObjectivePerturbation):
        noises = mechanism.noises(head)
        sigma, tilt = noises.scale, noises.tilt
    elif noise["sigma"] != sigma:
        raise Broken(f"sigma = {noise['sigma']!r} was recorded; {head.moves!r} over mu makes it {sigma!r}")
    simulated, shrink = record.config.get("seed") is not None, bool(getattr(mechanism, "shrink", False))
    drawn = ReleasedWeights(weight, mechanism.guarantee, sigma, step_of(sigma), simulated, tilt, shrink)
    derived = {**drawn.described, "simulated": simulated, **({"shrink": True} if shrink else {})}
    if difference := first_difference(noise, derived):
        raise Broken(f"{WEIGHTS_FILE} is not what the mechanism draws with: {difference}")
    record.findings.ok("noise", f"sigma = {sigma:.6g}{f', tilt = {tilt:.6g}' if tilt else ''}: worked out again")


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
        if not target.startswith("agt."):
            findings.note("code", f"its queries would be read by {target}, no part of agt; nothing of it was imported here")
        with findings.looking("noise"):
            _check_lattice(portable.weight, portable.noise, findings)
        with findings.looking("budget"):
            _check_words(portable, findings)
        if record.holds(CLAIM_FILE):
            with findings.looking(CLAIM_FILE):
                _check_portable_claim(portable, record)
        return portable
    return None


def _check_words(portable: Portable, findings: Findings) -> None:
    """The guarantee of the weights, and the total of it that their second line names at some delta."""
    guarantee, (first, second, *_) = guarantee_among(portable.noise), (*portable.words, "", "")
    if not first.startswith(f"the released weights are {guarantee} for "):
        raise Broken(f"its first words are no claim of {guarantee}: {first}")
    line, match = "", _TOTAL.search(second)
    if not second.startswith(PRICE) or isinstance(guarantee, GaussianDP):
        if match is None:
            raise Broken(f"its second line is no total of {guarantee}: {second}")
        found = weights_total(guarantee, float(match["delta"]))
        line = f"for any number of queries: {found}"
        if second != line:
            raise Broken(f"its words say {second}; {guarantee} comes to {found}")
    findings.ok("budget", f"worked out again: {guarantee}{line and f'; {line}'}")


def _check_portable_claim(portable: Portable, record: Record) -> None:
    """Its claim, made again from its own guarantee, relation and declarations: no training run is there to make it from."""
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
    record.findings.ok(CLAIM_FILE, f"{claimed.schema}: the same guarantee; its totals and curve are not below the truth")


# -- erasures --------------------------------------------------------------------------------------------------------------


def read_account_of(record: Record) -> Account | None:
    """The account of an erasure's record; None: there is none, or none that is sound, which is said."""
    if record.environment.get("rehearsed"):
        record.findings.note(
            ACCOUNT_FILE, "there is none: this is a rehearsal on a copy (rehearse=true), which erased nothing"
        )
        return None
    with record.findings.looking(ACCOUNT_FILE):
        account = read_account(record.read(ACCOUNT_FILE))
        record.findings.ok(ACCOUNT_FILE, f"{account.schema}: it does not contradict itself")
        return account
    return None


def check_account(account: Account, record: Record, run: Record | None, public: bytes | None) -> tuple[str, ...]:
    """An account against its own record, its signature, and the run that it is about; returns what it says, a line each.

    Args:
        run: as it is now, in this state or a later one; None: it could not be looked at.
        public: the owner's key; None: nobody gave one.
    """
    findings, budget = record.findings, account.budget
    with findings.looking("report"):
        if account.agt != __version__:
            findings.unchecked("report", OLDER.format(account.agt, __version__))
        else:
            same = record.read("report.md", MAX_PAGE_BYTES).decode() == account_markdown(account)
            findings.compare("report", same, "report.md is account.json in words", "report.md says something else")
    with findings.looking("metrics"):
        numbers = {"removed": account.done.records, **account.done.facts}
        numbers |= {"budget_spent": budget.spent, "budget": budget.total} if budget else {}
        record.check_metrics(ACCOUNT_FILE, **{name: number for name, number in numbers.items() if name in record.metrics})
    with findings.looking("signature"):
        check_signature(record, public)
    log = None if run is None else requests_of(run)
    if run is None or log is None:
        findings.unchecked("entry", "the run that it is about, or its request log, could not be looked at")
    else:
        with findings.looking("entry"):
            _check_spent(account, run, findings)
            _check_entry(account, log, run)
            findings.ok("entry", f"entry {account.state.entry} of the run's request log makes the same account")
    return tuple(line for line in account_lines(account) if not line.startswith(" "))


def check_signature(record: Record, public: bytes | None) -> None:
    """Whether somebody signed it, and who.

    Raises:
        Broken: the signature is none of these bytes, or another's than ``public``'s; or none is there and one is asked for.
        DataMissing: none could be checked here.
    """
    findings, names = record.findings, [name for name in (accounts.SIGNATURE, accounts.PUBLIC) if record.holds(name)]
    if len(names) == 1:
        raise Broken(f"{names[0]} lies there alone: a signature and its public key go together")
    if not names and public is not None:
        raise Broken("it is not signed, and public= asks for a signature")
    if not names:
        findings.note("signature", "not signed", "agt unlearn with key=OWNER.pem signs an account")
        return
    try:
        key = accounts.same(record.read(accounts.PUBLIC))
    except DataMissing as error:
        if public is not None:
            raise
        findings.unchecked("signature", str(error))
        return
    accounts.check(record.read(ACCOUNT_FILE), record.read(accounts.SIGNATURE), key)
    if public is None:
        words = f"by whoever holds the key of {accounts.PUBLIC}: whose that is, these files cannot tell"
        findings.note("signature", words, "give public=OWNER.pub as the owner handed it over another way")
        return
    wrong = f"it is signed by another key than public= is: {accounts.PUBLIC} is not the owner's"
    findings.compare("signature", public == key, "by the owner's key: exactly these bytes of account.json", wrong)


def _check_entry(account: Account, log: Log, run: Record) -> None:
    """The account is the one that the log's entry, and the states on its two sides, make. Raises Broken: it is not."""
    state, count = account.state, int(account.state.log.split(":")[0])
    if count > len(log.entries):
        raise Broken(f"it names entry {count} of the request log, which has {len(log.entries)}: an older copy of the run?")
    entry, then = log.entries[state.entry - 1], Log(log.entries[:count])
    if entry.kind != ("removed" if account.updated else "pending"):
        raise Broken(f"what became of it: {ACCOUNT_FILE} says {account.done.method}, and the run's log {entry.kind}")
    removed = len({record for each in log.batch(entry.number) for record in each.records}) if account.updated else 0
    if removed != account.done.records:
        raise Broken(f"records removed: {ACCOUNT_FILE} says {account.done.records}, and the run's log {removed}")
    after = log.entries[count].before if count < len(log.entries) else run.manifest.digest
    done, removal = account.done, entry.removal if "removal" in entry.facts else None  # older logs keep none
    derived = derive_account(
        entry,
        then,
        removal or Removal(Promise.of(entry.promise), done.records, done.seconds, done.facts, done.words, account.budget),
        (state.run, after, state.records_after),
        training=entry.facts.get("training", done.training),
        earlier=account.earlier,
        sweep=account.sweep,
        abstained=account.abstained,
        unlooked=account.outside[: -len(OUTSIDE)],
    )
    if account.agt != __version__:
        derived = replace(derived, agt=account.agt, outside=account.outside)
    if difference := first_difference(account.plain, derived.plain):
        raise Broken(f"{ACCOUNT_FILE} is not what the run's log makes of it: {difference}")


def _check_spent(account: Account, run: Record, findings: Findings) -> None:
    """The guarantee and the budget of a Newton step, by the run's settings and by what it left.

    Raises:
        Broken: they are not.
    """
    if account.done.method != "newton":
        return
    config, budget, residual = removal_of(run)
    told = account.budget
    total = config.tolerance if budget is None or config.bound == "measured" else budget
    if told is None or told.total != total or told.spent > total:
        raise Broken(f"the removal budget is {total!r} by the run's settings, and {ACCOUNT_FILE} says {told}")
    if account.state.after == run.manifest.digest and told.spent != residual:
        raise Broken(
            f"{ACCOUNT_FILE} says that {told.spent!r} is spent, and the run's state has a residual of {residual!r}"
        )
    check_promise({**vars(account.guaranteed), "adaptive": account.guaranteed.requests == "adaptive"}, run, told.spent)
    void = any(fact.standing is Standing.VOID for fact in account.guaranteed.assumptions)
    if not void and (config.seed is not None or config.masking == "loss"):
        raise Broken(f"masking={config.masking}, seed={config.seed}: something does not hold there, and it does not say so")
    findings.ok("removal budget", f"of the account, worked out again: {told.spent:.6g} of {total:.6g}")


def check_requests(record: Record) -> None:
    """The request log of a training run, if it has one, against everything else that the run says."""
    findings = record.findings
    with findings.looking("state"):
        check_not_replaced(record.digest, record.folder, home_of(record.folder), "path")
    if record.holds(RECORD_INDEX_FILE):
        with findings.looking("key"):
            _check_key(record)
    if not record.holds(REQUEST_LOG_FILE):
        if record.environment.get("succeeds"):
            words = f"env.json names states before this one (succeeds), and {REQUEST_LOG_FILE} is not listed"
            findings.problem("request log", words)
        return
    with findings.looking("request log"):
        log = Log.read(record.read(REQUEST_LOG_FILE))
        if log.head is None:
            raise Broken(f"{REQUEST_LOG_FILE} is empty, and it is listed")
        findings.ok("request log", f"{log.head.count} entries, each bound to the one before; it ends at {log.head}")
        log.check_state(record.manifest.files)
        findings.ok("state", f"the model's files are those that entry {log.head.count} tells of")
        _check_succession(log, record)
        _check_index(log, record)
        if log.entries[-1].method == "newton":
            check_promise(log.entries[-1].promise, record, removal_of(record)[2])


def requests_of(record: Record) -> Log | None:
    """The log of a run, as far as it can be read; None: it has none, or no sound one."""
    try:
        log = Log.read(record.read(REQUEST_LOG_FILE)) if record.holds(REQUEST_LOG_FILE) else Log()
    except (Broken, ValueError):
        return None
    return log if log.entries else None


def erased_words(record: Record) -> Iterator[str]:
    """What a run's log says of its model, a line each."""
    log = requests_of(record) or Log()
    if log.done:
        last, people = log.done[-1], len({unit for entry in log.done for unit in entry.units})
        yield f"{len(log.erased)} records of {people} people are erased from it: the last update was by {last.method}"
        exact, eps, delta = (last.promise.get(name) for name in ("exact", "eps", "delta"))
        what = "exact" if exact is True else f"epsilon = {eps}, delta = {delta} against never having seen them"
        if (within := last.promise.get("within")) is not None:
            what += f" up to a distance of {within} (l2, weights)"
        if any(fact.get("standing") == Standing.VOID for fact in last.promise.get("assumptions") or ()):
            what = f"NOT PROVED; as published: {what}"
        also = "also" if last.promise.get("adaptive") is True else "not"
        yield f"of that update: {what}, {also} where requests were chosen after looking"
    if log.pending:
        waiting = f"{len(log.waiting_units)} people more asked, and are still in it"
        yield f"{waiting}: only what is stable without them is answered"


def _check_succession(log: Log, record: Record) -> None:
    """The states that gave way are those that env.json lists."""
    listed, told = record.environment.get("succeeds"), [entry.before for entry in log.entries]
    if listed != told:
        raise Broken(
            f"env.json lists other states before this one (succeeds) than the {len(told)} that {REQUEST_LOG_FILE} names"
        )
    if len({*told, record.manifest.digest}) != len(told) + 1:
        raise Broken(f"{REQUEST_LOG_FILE} names one state twice among those that gave way")
    record.findings.ok("succession", f"{len(told)} states gave way, the same in env.json and in {REQUEST_LOG_FILE}")


def _check_index(log: Log, record: Record) -> None:
    """Of the records that were carried out none is in the index; those that wait all are."""
    if not record.holds(RECORD_INDEX_FILE):
        record.findings.unchecked("erased", f"the run has no {RECORD_INDEX_FILE}: it was made before runs kept one")
        return
    index = Index.read(record.read(RECORD_INDEX_FILE))
    there = set(as_words(index.ids))
    if len(there) != len(index) or any(entry.key != index.key for entry in log.entries):
        raise Broken(f"{RECORD_INDEX_FILE} and {REQUEST_LOG_FILE} are of two keys, or a record is in it twice")
    if left := len(log.erased & there):
        raise Broken(f"{RECORD_INDEX_FILE} still lists {left} of the {len(log.erased)} records that were erased")
    if gone := len(log.waiting - there):
        raise Broken(f"{RECORD_INDEX_FILE} does not list {gone} of the {len(log.waiting)} records whose erasure is pending")
    count = record.metrics.get("n_train")
    if type(count) is not int or count > len(index):
        raise Broken(f"metrics.json says n_train = {count}, and {RECORD_INDEX_FILE} lists {len(index)} records")
    record.findings.ok(
        "erased", f"none of the {len(log.erased)} erased records is among the {len(index)} of {RECORD_INDEX_FILE}"
    )


def _check_key(record: Record) -> None:
    """The owner's key, if it lies there, is the one that the records are indexed with; so is the log (``_check_index``)."""
    if not lexists(record.folder / KEY_FILE):
        words = f"{KEY_FILE} is gone: without it nobody can ask whether an id was trained on or erased"
        record.findings.unchecked("key", words)
        return
    key = HashKey(read_file(record.folder / KEY_FILE, 64))
    fits = key.check == Index.read(record.read(RECORD_INDEX_FILE)).key
    words = f"the one that {RECORD_INDEX_FILE} was written with"
    record.findings.compare("key", fits, f"{KEY_FILE} is {words}; no manifest lists it", f"{KEY_FILE} is not {words}")


def replaced(folder: Path, digest: str | None) -> str:
    """What a state of the run in a folder was, that an erasure replaced; empty: its log names none, or is not sound."""
    try:
        manifest = Manifest.open(folder)
        if digest is None or manifest.digest == digest or REQUEST_LOG_FILE not in manifest.files:
            return ""
        entries = Log.read(manifest.load(folder, REQUEST_LOG_FILE, 2**30)).entries
    except (Broken, ValueError, OSError):
        return ""
    for entry in entries:
        if entry.before == digest:
            people = f"{len(entry.units)} {'person' if len(entry.units) == 1 else 'people'}"
            how = "carried out" if entry.kind == "removed" else "noted"
            asked = f"{people}, {how} by method={entry.method}, {entry.time}"
            return f"made from state {digest[:19]}..., which erasure {entry.number} of the run replaced ({asked})"
    return ""


def check_budget(record: Record) -> None:
    """Of a head that records can be removed from: what removals left is within what its noise hides, worked out again."""
    if record.holds(NUMBERS):
        with record.findings.looking("removal budget"):
            config, budget, residual = removal_of(record)
            words = "no noise" if budget is None else f"{budget:.6g}, what noise of {config.sigma:g} hides"
            within = budget is None or residual <= budget
            right, wrong = f"a residual of {residual:.6g}, of {words}: worked out again", f"{residual!r}, beyond {words}"
            record.findings.compare("removal budget", within, right, f"{NUMBERS} has a residual of {wrong}")


def check_promise(promise: Mapping[str, Any], run: Record, residual: float) -> None:
    """What a Newton step that left such a residual may promise, by the noise of the run's settings; less may be promised.

    Raises:
        Broken: more is promised, or the noise does not hide as much.
    """
    config, budget, _ = removal_of(run)
    if not residual <= (config.tolerance if budget is None else budget):
        raise Broken(f"a Newton step left a residual of {residual!r}, beyond what its promise may rest on")
    made = newton.promise(config, residual, float(run.json(NUMBERS)["strength"]))
    right = {name: getattr(made, name) for name in ("exact", "adaptive", "eps", "delta", "within")}
    if told := {name: promise.get(name) for name, value in right.items() if not _no_better(promise.get(name), value)}:
        raise Broken(f"a Newton step under masking={config.masking} promises {right}, and {told} is told")


def _no_better(told: Any, right: bool | float | None) -> bool:
    """Whether a part of a promise says no more than what is right, the last digits of another machine's apart."""
    if right is None or isinstance(right, bool):
        return told is right
    return isinstance(told, float | int) and not isinstance(told, bool) and told >= right * (1 - 1e-9)


def removal_of(run: Record) -> tuple[RemovalConfig, float | None, float]:
    """(settings, the removal budget, bound on the residual) of a head that records can be removed from."""
    config: RemovalConfig = validate(RemovalConfig, run.config["certificate"], "certificate")
    numbers = run.json(NUMBERS)
    return config, removal_budget(config, float(numbers["strength"])), float(numbers["residual"])
