"""agt predict: a finished training run and a file of queries -> labels that may be published, with their guarantee."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.certificates.box import Certificates
from agt.certificates.conditions import declarations
from agt.certificates.votes import published_vote
from agt.errors import ConfigError
from agt.mechanisms.aggregate import CertifiedQuantile, release_quantile
from agt.mechanisms.composition import Total, total
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.planning import Budget, afford, kind_of
from agt.mechanisms.randomness import Randomness, SeededRandomness, SystemRandomness
from agt.mechanisms.rigour import Accounting, Claim, Counting, claim, evidence_of, neighbours_of
from agt.mechanisms.weights import ReleaseWeights, check_claim, release_weights, weights_budget
from agt.models.ensemble import VoteCertificates
from agt.models.linear import LinearModel
from agt.numeric import labels_of
from agt.settings import STRICT, NonNegative, Positive, imported, validate
from agt_cli.report.console import Console
from agt_cli.report.finished import open_run
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import predict_report
from agt_cli.runs.model import certify
from agt_cli.runs.noise import APART
from agt_cli.runs.prepare import only_keys
from agt_cli.runs.queries import Asked, ask, digest_of
from agt_cli.runs.queries import Source as Queries
from agt_cli.runs.spending import Spending, of_run, spending, unfinished

KEYS = ("run", "inputs", "digest", "mechanism", "total", "accounting", "counting", "seed", "compute", "output_dir")
CONTENT = re.compile("[0-9a-f]{32}")  # what data/ids.py makes
SHOWN_DELTA = 1e-5  # where a total is shown for budgets given per query
SCOPE = (
    "it is about the training records, among data that training takes without an error (it refuses a batch above n_max, a "
    "unit above relation.unit_rows, a class or a value that is missing, and the like); the queries, their number and ids "
    "are taken to be public, and not to depend on the training records"
)


@validated(frozen=True, config=STRICT)
class TotalConfig:
    """The budget of the whole call.

    Attributes:
        eps, delta: over all of its queries together.
        queries: a public cap on how many they may be; None: as many as the file holds, its length being public.
    """

    eps: Positive | None = None
    delta: Annotated[NonNegative, Field(lt=1)] = 0.0
    queries: Annotated[int, Field(ge=1)] | None = None


@validated(frozen=True, config=STRICT)
class Request:
    """What is asked for, beside the mechanism."""

    run: str
    inputs: str | None = None
    total: TotalConfig = Field(default_factory=TotalConfig)
    accounting: Accounting = "rigorous"
    counting: Counting = "distance"
    seed: Annotated[int, Field(ge=0)] | None = None


@dataclass(frozen=True)
class Job:
    """A valid request.

    Attributes:
        kind: the mechanism's class.
        given: those of its settings that are not null.
    """

    request: Request
    kind: type[Mechanism] | type[ReleaseWeights] | type[CertifiedQuantile]
    given: Mapping[str, Any]
    queries: Queries


@dataclass(frozen=True)
class Released:
    """What is to come out, and what is said of it.

    Attributes:
        draw: draws and gives [n] class indices; everything that can be worked out before was.
        each: the guarantee of one query (of the one release, for weights).
        claim: what may be said about it.
        totals: of all queries together, in words.
    """

    draw: Callable[[], np.ndarray]
    each: Guarantee
    claim: Claim
    totals: tuple[str, ...]


def configure(config: Mapping[str, Any]) -> Job:
    """Validate the request, its budget and the run it names, before any data is read."""
    only_keys(config, KEYS)
    asked = {key: config.get(key) for key in KEYS[:2]}
    asked = {key: None if value is None else str(value) for key, value in asked.items()}
    rest = {key: config.get(key) for key in ("total", "accounting", "counting", "seed")}
    request = validate(Request, {**asked, **rest}, "")
    kind, given = _mechanism(config.get("mechanism"))
    _check_budget(request, kind, given)
    return Job(request, kind, given, Queries.of(request.run, request.inputs, config))


def _mechanism(node: object) -> tuple[type[Any], dict[str, Any]]:
    """The mechanism's class, and what the configuration sets of it."""
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"mechanism: expected a mapping with a _target_, got {node!r}")
    kind = imported(str(node["_target_"]), "mechanism")
    known = isinstance(kind, type) and issubclass(kind, Mechanism | ReleaseWeights | CertifiedQuantile)
    if not known or not hasattr(kind, "name"):  # the base class has none
        raise ConfigError(f"mechanism._target_: '{node['_target_']}' is no release mechanism")
    return kind, {key: value for key, value in node.items() if value is not None and key != "_target_"}


def _check_budget(request: Request, kind: type[Any], given: Mapping[str, Any]) -> None:
    """A budget must be stated once: per query in mechanism.*, or for the whole call in total.*."""
    own = [key for key in ("eps", "mu") if key in given] + (["delta"] if given.get("delta") else [])
    total_eps, name = request.total.eps, "mu" if "mu" in kind.__dataclass_fields__ else "eps"
    stated = [*(f"mechanism.{key}" for key in own), *(["total.eps"] if total_eps is not None else [])]
    if given.get("weights"):
        if stated:
            raise ConfigError(
                f"mechanism.weights were released at a budget of their own, which they keep: leave out {stated[0]}"
            )
        return
    if not stated:
        each = "the one release" if kind is ReleaseWeights else "each query"
        raise ConfigError(f"no budget: give total.eps (and total.delta) for the whole call, or mechanism.{name} for {each}")
    if own and total_eps is not None:
        raise ConfigError(f"total.eps and mechanism.{own[0]} both state a budget: give one of them")
    if total_eps is None:
        validate(kind, given, "mechanism")
    elif not request.total.delta and _needs_delta(kind):
        raise ConfigError(f"mechanism={kind.name} gives no guarantee without a delta: give total.delta (1e-5, say) as well")


def _needs_delta(kind: type[Any]) -> bool:
    return kind is ReleaseWeights or (issubclass(kind, Mechanism) and kind_of(kind) is not PureDP)


def run(job: Job, record: RunRecord, console: Console) -> dict[str, Any]:
    """Release the labels and write the record."""
    source: Randomness = SystemRandomness() if job.request.seed is None else SeededRandomness(job.request.seed)
    asked = ask(job.queries, record, console)
    count = len(asked.queries)
    most = job.request.total.queries
    if most is not None and count > most:
        raise ConfigError(f"the file holds {count} queries and total.queries is {most}: raise it, or cut the file")
    earlier = [] if source.simulated else unfinished(record, of_run(job.queries.finished))
    for line in earlier:
        console.say(line)
    if issubclass(job.kind, CertifiedQuantile):
        return _release_quantile(job, asked, record, source, console, earlier)
    if issubclass(job.kind, ReleaseWeights):
        released = _release_weights(job, asked, record, source)
    else:
        released = _release_labels(job, job.kind, asked, source, console)
    record.conditions(asked.conditions)
    proved = released.claim.proved and not source.simulated
    record.add_metrics(n_queries=count, proved=int(proved), simulated=int(source.simulated), **released.each.parameters)
    dataset, words = asked.prepared.dataset.name, _words(released, source, _noisy(job))
    new = job.kind is ReleaseWeights and not job.given.get("weights")
    publishable = f"`labels.csv`{' and `released_weights.safetensors`' if new else ''}" if proved else None
    report = predict_report(dataset, job.queries.words, job.kind.name, [*words, *earlier], publishable, record).encode()
    table = _LabelTable(_names(asked.queries.ids), asked.prepared.dataset.classes)
    write_labels = record.reserve("labels.csv", table.size)
    # Whatever can fail has had its chance; from here on what was spent is on disk.
    with nullcontext() if job.given.get("weights") else _spending(job, asked, record, released, source):
        labels = released.draw()
        write_labels(table.csv(labels))
        record.write("report.md", report)
        digest = record.finish()
    for line in words:
        console.say(line)
    console.say(f"labels: {record.folder / 'labels.csv'}")
    if new:
        console.say(f"digest: {digest}")
    found = {"metrics": record.metrics, "claim": words[0], "words": [*words, *earlier], "labels": table.labels(labels)}
    return found | ({"digest": digest} if new else {})


def _spending(
    job: Job, asked: Asked, record: RunRecord, released: "Released", source: Randomness
) -> AbstractContextManager[None]:
    """What is about to be drawn, on disk before it is (spending.py)."""
    what = {ReleaseWeights: "weights", CertifiedQuantile: "a number"}.get(job.kind, "labels")
    each, totals = str(released.each), released.totals or (f"in all: {released.each}",)
    queries, dataset = len(asked.queries), asked.prepared.dataset.name
    about = Spending(what, job.kind.name, each, totals, queries, dataset, source.simulated)
    return spending(record, of_run(job.queries.finished), about)


@dataclass(frozen=True)
class _LabelTable:
    """labels.csv: names and labels of the queries, whose number of bytes has a public bound.

    Attributes:
        names: [n] str.
        classes: the labels' names.
    """

    names: np.ndarray
    classes: tuple[str, ...]

    @property
    def size(self) -> int:
        """As many bytes as it can come to: every label the longest."""
        lengths = [len(_csv({"record_id": ["0"], "label": [name]})) for name in self.classes]
        return len(self.csv(np.full(len(self.names), int(np.argmax(lengths)))))

    def labels(self, labels: np.ndarray) -> list[str]:
        """[n] class indices as names."""
        return [self.classes[label] for label in labels]

    def csv(self, labels: np.ndarray) -> bytes:
        """The file's content."""
        return _csv({"record_id": self.names, "label": np.array(self.labels(labels), dtype=object)})


def _csv(columns: Mapping[str, Any]) -> bytes:
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n").encode()


def _names(ids: np.ndarray) -> np.ndarray:
    """[n] str: the names that labels are published under: the ids that were given, or row numbers.

    Ids made from content also hash a test record's true label, so that whoever knows the record could test a guess of it.
    """
    names = ids.astype(str)
    made = all(CONTENT.fullmatch(name) for name in names.tolist())
    return np.arange(len(names)).astype(str) if made else names


def _release_quantile(
    job: Job, asked: Asked, record: RunRecord, source: Randomness, console: Console, earlier: list[str]
) -> dict[str, Any]:
    """One number instead of labels: up to which distance a fraction of the queries is certified."""
    budget = {"eps": job.request.total.eps} if job.request.total.eps else {}
    aggregate = validate(CertifiedQuantile, {**budget, **job.given}, "mechanism")
    relation, counting = job.queries.settings.relation, job.request.counting
    voting: Literal["none", "certified"] = "certified" if job.queries.settings.ensemble.members > 1 else "none"
    said = claim(asked.conditions, relation, aggregate, job.request.accounting, counting, voting)
    evidence = evidence_of(certify(asked.model, asked.queries.features, console, "certifying"), counting)
    end = asked.model.metrics["k_max"]  # of the grid: a public constant
    text = said.text.replace("per query", "for this one number")

    def draw() -> np.ndarray:
        return np.array([release_quantile(evidence, aggregate.fraction, int(end), aggregate.guarantee, source)])

    released = Released(draw, aggregate.guarantee, replace(said, text=text), ())
    words = _words(released, source, _noisy(job))
    record.conditions(asked.conditions)
    proved = said.proved and not source.simulated
    known = {"proved": int(proved), "simulated": int(source.simulated)}
    record.add_metrics(fraction=aggregate.fraction, **known, eps=aggregate.eps)
    dataset, publishable = asked.prepared.dataset.name, "That number" if proved else None
    with _spending(job, asked, record, released, source):
        value = int(released.draw()[0])
        record.add_metrics(certified_quantile=value)
        published = f"{aggregate.fraction:g} of the queries are certified up to a distance of about {value}"
        lines = [published, *words, *earlier]
        report = predict_report(dataset, job.queries.words, aggregate.name, lines, publishable, record)
        record.write("report.md", report.encode())
        record.finish()
    for line in (published, *words):
        console.say(line)
    found = {"metrics": record.metrics, "claim": words[0], "words": [*words, *earlier]}
    return {**found, "certified_quantile": value}


def _release_labels(job: Job, kind: type[Mechanism], asked: Asked, source: Randomness, console: Console) -> Released:
    classes, count = asked.prepared.classes, len(asked.queries)
    budget = job.request.total
    if budget.eps is None:
        mechanism = validate(kind, {"classes": classes, **job.given}, "mechanism")
    else:
        queries = budget.queries or count
        mechanism = afford(kind, Budget(budget.eps, budget.delta, queries), classes)
    if job.given.get("classes", classes) != classes:
        raise ConfigError(f"mechanism.classes={job.given['classes']} and the model has {classes}: leave it null")
    paper = job.request.accounting == "paper"
    ensemble = job.queries.settings.ensemble.members > 1
    voting: Literal["none", "certified", "published"] = "none"
    if ensemble:
        voting = "published" if paper and mechanism.needs == "distance" else "certified"
    if voting == "published" and classes > 2:
        raise ConfigError(
            f"accounting=paper: the published vote of an ensemble (001 Theorem 5.3) is of two classes and the model has "
            f"{classes}: use accounting=rigorous, whose certified vote takes any number"
        )
    totals = _totals(mechanism.guarantee, count, budget.delta)
    # The claim comes first: where it is refused, no distance is computed.
    relation, counting = job.queries.settings.relation, job.request.counting
    said = claim(asked.conditions, relation, mechanism, job.request.accounting, counting, voting)
    certificates = certify(asked.model, asked.queries.features, console, "certifying")
    prediction, evidence = _evidence(certificates, mechanism, counting, voting)
    return Released(lambda: mechanism.release(prediction, evidence, source), mechanism.guarantee, said, totals)


def _evidence(
    certificates: Certificates, mechanism: Mechanism, counting: Counting, voting: str
) -> tuple[np.ndarray, np.ndarray]:
    """(nominal labels, what the mechanism sees of each query)."""
    if mechanism.needs == "votes":
        if not isinstance(certificates, VoteCertificates):
            raise ConfigError(f"mechanism={mechanism.name} counts an ensemble's votes: train with ensemble.members=T")
        return certificates.prediction, certificates.gap
    if isinstance(certificates, VoteCertificates) and voting == "published":
        vote = published_vote(certificates.members, certificates.member_distances)
        return vote.prediction, vote.distance
    return certificates.prediction, evidence_of(certificates, counting)


def _release_weights(job: Job, asked: Asked, record: RunRecord, source: Randomness) -> Released:
    model, relation = asked.model, job.queries.settings.relation
    if not isinstance(model, LinearModel):
        raise ConfigError(
            "mechanism=release_weights is for one linear head: train with model=linear certificate=stability, no ensemble"
        )
    check_claim(asked.conditions, relation)
    settings = validate(ReleaseWeights, job.given, "mechanism")
    if settings.weights:
        weight, guarantee = _earlier(job, settings)
    else:
        weight, budget = None, job.request.total
        guarantee = GaussianDP(settings.mu) if settings.mu else weights_budget(float(budget.eps or 0), budget.delta)
    phi = model.phi(asked.queries.features).astype(np.float64)

    def draw() -> np.ndarray:
        if weight is not None:
            return labels_of(phi @ weight.T)
        released = release_weights(model.trained.weight.numpy(), model.moves, guarantee, source)
        noise = {"sigma": released.sigma, "step": released.step}
        record.released_weights(released.weight, {"mu": guarantee.mu, **noise, "simulated": source.simulated})
        return labels_of(phi @ released.weight.T)

    neighbours = neighbours_of(relation)
    text = (
        f"the released weights are {guarantee} for {relation.name} neighbours ({neighbours}), and so is every label that "
        "is computed from them"
    )
    totals: tuple[str, ...] = (f"for any number of queries: {total(guarantee, 1, job.request.total.delta or SHOWN_DELTA)}",)
    if settings.weights:
        totals = (*totals, f"weights released earlier ({settings.weights}): these labels spend nothing more")
    return Released(draw, guarantee, Claim(True, text, neighbours, (), declarations(asked.conditions)), totals)


def _earlier(job: Job, settings: ReleaseWeights) -> tuple[np.ndarray, GaussianDP]:
    """Weights that an earlier call released from the same training run, wherever it lies now, and what they guarantee.

    Raises:
        ConfigError: not such a release, or one of another run, or a simulation.
    """
    folder, trained = Path(settings.weights or ""), job.queries.finished
    digest = digest_of(job.given, "weights_digest", "mechanism.")
    release = open_run(folder, "predict", digest, "mechanism.weights")
    run, made_from = (release.environment.get(key) for key in ("trained_run", "trained_digest"))
    if made_from != trained.digest:
        raise ConfigError(
            f"mechanism.weights={folder}: released from the run {run}, not from {trained.folder} (digests {made_from} and "
            f"{trained.digest})"
        )
    weight, constants = release.released_weights()
    if constants.get("simulated"):
        raise ConfigError(
            f"mechanism.weights={folder}: a simulation (drawn with a seed), which guarantees nothing: release without seed"
        )
    return weight, GaussianDP(float(constants["mu"]))


def _totals(guarantee: Guarantee, queries: int, delta: float) -> tuple[str, ...]:
    """What the queries of this call cost together, at the delta asked for.

    Args:
        delta: 0: none was asked for; one is chosen to show a total at.

    Raises:
        ConfigError: the queries' own deltas exceed the one asked for.
    """
    spent = queries * guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
    if delta and spent >= delta:
        raise ConfigError(
            f"total.delta={delta:g} and {queries} queries spend a delta of {spent:g} alone: lower mechanism.delta, or "
            "raise total.delta"
        )
    shown = total(guarantee, queries, delta or max(SHOWN_DELTA, min(0.5, 2 * spent)))
    found: list[Total] = [total(guarantee, queries, 0.0)] if isinstance(guarantee, PureDP) else []
    if not found or shown.eps < found[0].eps:
        found.append(shown)
    return tuple(f"all {queries} together: {each}" if queries > 1 else f"in all: {each}" for each in found)


def _noisy(job: Job) -> bool:
    return job.queries.settings.noise is not None


def _words(released: Released, source: Randomness, noisy: bool = False) -> list[str]:
    """What may be said, in lines; ``noisy``: of a run that trained with noise."""
    claim = released.claim
    said = [claim.text, *((*released.totals, SCOPE, *claim.declared) if claim.proved else claim.declared)]
    said += [APART] if noisy else []
    if source.simulated:
        simulation = "SIMULATION: the draws come from a seed and can be predicted; this is not a private release"
        return [simulation, *(f"drawn without a seed it would be: {line}" for line in said)]
    return [*said, "this call keeps no account of other releases about the same data: their losses add up"]
