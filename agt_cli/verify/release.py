"""What a release says of its budget, its labels and its weights, made again from what it rests on,
and compared.

Formal guarantees
    Nothing that a record says of its budget is taken from its text: the guarantee of one answer is
    made from the mechanism's parameters, the totals by agt/mechanisms/composition.py from that
    guarantee and the number of answers, and whether it may be claimed at all by
    agt/mechanisms/judging.py from the conditions as recorded. What differs from the record is a
    problem, whichever of the two is larger. What is not shown: that the draws were made with those
    parameters.

A claim is a function of the training run's model, the mechanism's settings, the counts and the
account that it names. Fields are compared; words are a function of the fields, as one version of
agt says them, and are compared as a whole with what that version makes of them. Nothing of somebody
else's code is loaded.
"""

import csv
from collections.abc import Mapping
from dataclasses import asdict, replace
from io import BytesIO, TextIOWrapper
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from agt import __version__, sentences
from agt.certificates.conditions import weaker_conditions
from agt.facts import LAST_IN_WORDS
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Claim, Reason, describe_neighbours, read_claim
from agt.mechanisms.composition import total
from agt.mechanisms.guarantees import Guarantee, PureDP, read_guarantee
from agt.mechanisms.judging import Claimable, claim
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.measurement import Measurement
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import MechanismConfig
from agt.mechanisms.output import Output
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.statistics import NoisyStatistics
from agt.mechanisms.totals import claim_of_labels, total_of_weights
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.models.model import Model
from agt.models.number_votes import NumberVotes
from agt.numeric import step_of
from agt.release import NumberRelease, ReleaseTerms, judge_labelling
from agt.settings import RelationConfig, TotalConfig, plain_of, validate
from agt.store.reading import MAX_TEXT_BYTES, Broken
from agt.store.yaml_text import parse_yaml
from agt.targets import current_name
from agt.training.lattice import LATTICE_STEPS
from agt_cli.ledger_files import NO_LEDGER
from agt_cli.report.markdown import Findings
from agt_cli.verify.environment import compare_spent
from agt_cli.verify.folders import (
    Record,
    check_match,
    check_version,
    rendered_alike,
    spent_has_fields,
)
from agt_cli.verify.pages import CLAIM_FILE, LABEL_FILES, WEIGHTS_FILE, by_lines, open_parquet

LABEL_COLUMNS = ["record_id", "label"]
DATASET_FILE = "dataset.yaml"
RELEASED_ARRAYS = "released_weights.safetensors"
MAX_CLASSES = 10_000
_KINDS = {("eps",): "pure", ("eps", "delta"): "approximate", ("mu",): "gaussian"}


def guarantee_among(parameters: Mapping[str, Any]) -> Guarantee:
    """The guarantee with these parameters, among others that are none.

    Raises KeyError, ConfigError: there is none.
    """
    keys = tuple(key for key in ("eps", "delta", "mu") if parameters.get(key) is not None)
    return read_guarantee({"kind": _KINDS[keys], **{key: parameters[key] for key in keys}})


def measurement(config: Mapping[str, Any]) -> Measurement:
    """The mechanism with the settings of ``agt measure``."""
    relation: RelationConfig = validate(RelationConfig, config["relation"], "relation")
    return Measurement(float(config["total"]["eps"]), float(config["total"]["delta"]), relation)


def asked_of(record: Record) -> MechanismConfig:
    """The mechanism and the total that the settings of a release ask for."""
    return MechanismConfig.from_settings(
        record.config["mechanism"], validate(TotalConfig, record.config.get("total"), "total")
    )


def check_release(record: Record, trained: Record | None) -> tuple[str, ...]:
    """The budget of a release and its claim, made again; returns what may be claimed, a line
    each.
    """
    findings, claimed, model = (
        record.findings,
        None,
        None if trained is None else trained.rebuilt_model,
    )
    if not record.spent:
        return _check_free(record)
    simulated = _is_simulated(record, record.config.get("seed"))
    if record.holds(CLAIM_FILE):
        with findings.looking(CLAIM_FILE):
            claimed = _read_claim(record, simulated)
    else:
        findings.unchecked(
            CLAIM_FILE,
            "there is no claim to check, because an early version of agt, which did not write "
            "claims, made this release",
        )
    if model is None:
        findings.unchecked(
            "claim",
            "the claim could not be recomputed, because the training run could not be read in "
            "the state that the release used",
        )
    with findings.looking("budget" if model is None else "claim"):
        derived = _derive_claim(record, model, claimed, simulated)
        if claimed is not None and (model is not None or derived.proved or claimed.proved):
            _compare_claim(claimed, derived, record)
        text = derived.text
        if model is not None:
            findings.ok(
                "claim",
                f"the claim was recomputed from the model, the mechanism, the number of answers "
                f"and the ledger: {text}",
            )
        elif claimed is None:
            text = str(derived.guarantee)
        if derived.proved or model is not None:
            totals = [sentences.UNFIXED] if derived.one_by_one else derived.total_sentences
            return (text, *totals)
    return ()


def _derive_claim(
    record: Record, model: Model | None, claimed: Claim | None, simulated: bool
) -> Claim:
    """The claim, judged as agt predict judges it; spent.json and metrics.json say the same.

    Args:
        model: that it was made from; None: it is not there, and what of it counts is taken from the
            claim.

    Raises:
        Broken: a file says something else, or more was spent than was asked for.
    """
    asked, size, lines = asked_of(record), int(record.spent["queries"]), by_lines(record)
    delta, count = (
        asked.total.delta,
        (asked.total.queries or 1) if lines else int(record.metrics.get("n_queries", 1)),
    )
    # a guarantee is the same for any number of classes
    classes = 2 if model is None else model.problem.dataset.target.class_count
    granted = replace(
        _granted(record, model, asked.mechanism(classes, count), claimed), simulated=simulated
    )
    output, each = granted.output, granted.guarantee
    if output is Output.LABELS:
        granted = claim_of_labels(granted, size, delta)
    elif output is Output.WEIGHTS:
        granted = replace(granted, totals=(total_of_weights(each, delta),))
    else:
        granted = replace(granted, answers=size)
    if asked.total.eps is not None:
        within = total(each, size if output is Output.LABELS else 1, delta)
        # One number is exactly what it is; totals are rounded upwards.
        spent = each.eps if output is Output.NUMBER and isinstance(each, PureDP) else within.eps
        if spent > asked.total.eps:
            allowed = asked.total.eps
            raise Broken(
                f"the release is {within}, so it spent more budget than total.eps={allowed:g} "
                "allows"
            )
    if output is Output.WEIGHTS:
        record.check_metrics("spent.json", n_queries=size)
    if output is Output.LABELS and (lines or not record.spent.get("ledger")):
        record.check_metrics("spent.json", **{"reserved" if lines else "n_queries": size})
    metrics = {"simulated": int(simulated), **each.parameters}
    if model is not None or record.metrics.get("proved"):
        metrics["proved"] = int(granted.publishable)
    record.check_metrics("config.yaml", **metrics)
    _compare_spent(record, granted)
    if not lines:
        return granted
    most = asked.total.queries
    return replace(
        granted,
        one_by_one=True,
        most=most,
        totals=claim_of_labels(granted, most, delta).totals if most else (),
    )


def _granted(
    record: Record, model: Model | None, mechanism: Claimable, claimed: Claim | None
) -> Claim:
    """What may be claimed of a release.

    Between which datasets, and whether training drew noise, is in the training run alone; where
    that is away, the claim's word is taken for it.
    """
    config, conditions = record.config, record.conditions
    rules = {
        "accounting": config.get("accounting", "rigorous"),
        "counting": config.get("counting", "distance"),
    }
    relation, noisy = RelationConfig("add_remove"), False
    if model is not None:
        relation, noisy = model.problem.settings.relation, model.problem.settings.noise is not None
    elif claimed is not None:
        relation, noisy = claimed.relation, bool(claimed.noisy)
    if model is None and isinstance(mechanism, Mechanism | CertifiedQuantile | LaplaceMean):
        output = Output.NUMBER if isinstance(mechanism, CertifiedQuantile) else Output.LABELS
        return claim(conditions, relation, mechanism, **rules, output=output, noisy=noisy)
    if model is not None and isinstance(mechanism, Mechanism | LaplaceMean):
        terms = ReleaseTerms(conditions=conditions, **rules)
        return judge_labelling(model, mechanism, terms).claim
    if model is not None and isinstance(mechanism, CertifiedQuantile):
        nothing = model.problem.dataset.train.features[:0]
        return NumberRelease.judged(
            model, nothing, mechanism, ReleaseTerms(conditions=conditions, **rules)
        ).claim
    if model is not None:
        head = cast(WeightsMechanism, mechanism).releasable_head(model)
        conditions = weaker_conditions(conditions, head.conditions)
    return claim(conditions, relation, mechanism, output=Output.WEIGHTS, noisy=noisy)


def _compare_spent(record: Record, claim: Claim) -> None:
    """Raise Broken unless spent.json says what the release comes to."""
    derived: dict[str, object] = {
        "what": claim.output.value,
        "mechanism": claim.mechanism,
        "simulated": claim.simulated,
    }
    if spent_has_fields(record):
        derived |= {
            "guarantee": claim.guarantee.as_json,
            "totals": [asdict(each) for each in claim.totals],
        }
    compare_spent(record, derived, "the budget recomputed for this release")
    totals = "; ".join(claim.total_sentences)
    record.findings.ok("budget", f"recomputed: {totals}")


def _read_claim(record: Record, simulated: bool) -> Claim:
    """It says what the files beside it do, whether or not the training run is there."""
    claimed, spent, status = (
        read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES)),
        record.spent,
        record.status,
    )
    check_version(claimed.agt, CLAIM_FILE, record)
    ledger, account = spent.get("ledger") or {}, claimed.account
    releases = int(spent["queries"]) if spent["what"] == Output.LABELS else 1
    said = {
        "mechanism": claimed.mechanism,
        "releases": claimed.releases,
        "simulated": claimed.simulated,
        "ledger": None if account is None else [account.population, account.entry],
    }
    beside = {"mechanism": spent["mechanism"], "releases": releases, "simulated": simulated}
    beside["ledger"] = [ledger.get("population"), ledger.get("entry")] if ledger else None
    if not spent_has_fields(record) and not claimed.of_earlier_form:
        raise Broken(
            "spent.json states the guarantee as a sentence, as only early versions of agt did, but "
            f"a later version wrote {CLAIM_FILE} in the same folder"
        )
    if spent_has_fields(record):
        said["guarantee"], beside["guarantee"] = claimed.guarantee.as_json, spent["guarantee"]
    check_match(CLAIM_FILE, said, "spent.json and the settings", beside)
    started = str(status.get("started"))
    ended = str(status.get("ended"))
    if not started[:10] <= str(claimed.issued) <= ended[:10]:
        raise Broken(
            f"{CLAIM_FILE} was issued on {claimed.issued}, but the release was made from {started} "
            f"to {ended}"
        )
    record.findings.ok(
        CLAIM_FILE,
        f"the claim (format {claimed.schema}) was recomputed, and its totals and curve do not "
        "understate the privacy loss",
    )
    return claimed


def _compare_claim(claimed: Claim, derived: Claim, record: Record) -> None:
    """Raise Broken unless a claim is the one that the release makes, on the account that it
    names.
    """
    counted: Account | Uncounted | None = claimed.account
    if claimed.account is not None and not claimed.of_earlier_form:
        counted = replace(claimed.account, counts="answers" if derived.one_by_one else "entry")
    elif claimed.account is None and not derived.simulated and not claimed.of_earlier_form:
        counted = _reason_uncounted(claimed, record)
    compare_claims(claimed, derived.with_account(counted), record.findings)


def _reason_uncounted(claimed: Claim, record: Record) -> Uncounted:
    """Why no ledger counts a release: by its settings, or by env.json, which says what AGT_LEDGER
    was.

    Raises:
        Broken: the claim gives another reason.
    """
    uncounted = claimed.uncounted
    named = record.config.get("ledger") or record.environment.get("ledger")
    expected = "declined" if named == NO_LEDGER else "unnamed"
    why = None if uncounted is None else uncounted.why
    if uncounted is None or why != expected:
        raise Broken(
            f"{CLAIM_FILE} does not match this release: its field 'uncounted.why' is {why!r}, "
            f"but should be {expected!r}"
        )
    if why == "declined":
        words = (
            "the claim lists the ledgers that were in the working directory at the release (in "
            "its fields 'uncounted.ledgers' and 'uncounted.unopened'). This list cannot be "
            "checked, because no other file contains it"
        )
        record.findings.unchecked("ledgers", words)
    return uncounted


def compare_claims(claimed: Claim, derived: Claim, findings: Findings) -> None:
    """Raise Broken unless two claims have the same fields, their day apart, and the first one's
    words are its fields'.

    Of what an earlier version wrote as sentences nothing is compared, which is said.
    """
    derived = replace(derived.for_file(), issued=claimed.issued, agt=claimed.agt)
    in_words = claimed.declared_in_words and LAST_IN_WORDS in (claimed.agt, __version__)
    own_words = claimed.agt == __version__ and not claimed.of_earlier_form and not in_words
    if claimed.of_earlier_form:
        derived = _of_earlier_form(derived)
    elif in_words and _declares_as_text(claimed, derived):
        derived = replace(derived, declared=claimed.declared)
    fields, expected = (
        {**plain_of(each), "words": [], "outside": []} for each in (claimed, derived)
    )
    check_match(CLAIM_FILE, fields, "this release", expected)
    if not own_words:
        reason = (
            f"agt {claimed.agt} wrote {CLAIM_FILE}, but this is agt {__version__}, which may word "
            "sentences differently"
        )
        if claimed.of_earlier_form or in_words:
            reason = f"{CLAIM_FILE} has the form of an earlier version of agt"
        findings.unchecked(
            "words", f"the sentences in {CLAIM_FILE} were not compared, because {reason}"
        )
        return
    made = claimed.for_file()
    if not rendered_alike((claimed.words, claimed.outside), (made.words, made.outside)):
        raise Broken(
            f"the sentences in {CLAIM_FILE} (fields 'words' and 'outside') do not match the other "
            "fields"
        )


def _of_earlier_form(claim: Claim) -> Claim:
    """A claim without what an earlier version recorded as sentences; it had no total of answers
    that come one by one.
    """
    reasons: tuple[Reason, ...] | None = () if claim.proved else None
    claim = replace(claim, reasons=reasons, declared=None, noisy=None)
    return (
        replace(claim, one_by_one=False, most=None, totals=(), curve=None)
        if claim.one_by_one
        else claim
    )


def _declares_as_text(claimed: Claim, derived: Claim) -> bool:
    """Whether a claim has all that the record has as text, and declarations about the same
    conditions.
    """
    told, made = (each.declared or () for each in (claimed, derived))
    letters, expected = ({known.condition for known in each} for each in (told, made))
    return letters == expected and all(known in told for known in made if known.fact.in_words)


def _check_free(record: Record) -> tuple[str, ...]:
    """Nothing was spent only where weights released earlier answer, or a ledger's stored answers
    do.
    """
    config, answered, stored = (
        record.config,
        record.metrics.get("answered"),
        record.metrics.get("stored"),
    )
    if config.get("release") or (config.get("mechanism") or {}).get("weights"):
        return (sentences.FREE,)
    free = type(stored) is int and stored == answered
    free = free and (
        not answered or (config.get("ledger") != NO_LEDGER and config.get("seed") is None)
    )
    right = (
        f"according to metrics.json, all {stored} answers came from a ledger, which stored them "
        "and paid for them when they were drawn"
    )
    wrong = (
        "spent.json is missing, although these answers come neither from a ledger nor from "
        "weights released earlier, so the budget that they spent is not known"
    )
    record.findings.compare("budget", free, right, wrong)
    return (sentences.FREE,) if free else ()


def check_tuned(record: Record, trained: Record | None) -> tuple[str, ...]:
    """What private tuning of an earlier version released: nobody works its price out again."""
    if record.spent:
        version = record.environment.get("agt")
        record.findings.unchecked(
            "claim",
            f"the budget of private tuning was not recomputed, because only agt {version}, which "
            "made this folder, can do that: this version has no private tuning",
        )
    return ()


def check_measured(record: Record, trained: Record | None) -> tuple[str, ...]:
    """What was measured of a table: its budget and claim, and the price that whoever trains with
    it is told.
    """
    with record.findings.looking(DATASET_FILE):
        noted = (
            parse_yaml(record.read(DATASET_FILE, MAX_TEXT_BYTES), DATASET_FILE).get("measurement")
            or {}
        )
        mechanism = measurement(record.config)
        price = sentences.price(str(mechanism.guarantee), describe_neighbours(mechanism.relation))
        version = record.environment.get("agt")
        recorded = noted.get("claim")
        if version != __version__:
            record.findings.unchecked(
                "words",
                f"the sentences in {DATASET_FILE} were not compared, because agt {version} wrote "
                "them, and versions may word sentences differently",
            )
        elif not rendered_alike(recorded, price):
            raise Broken(
                f"according to {DATASET_FILE}, measuring the constants was {recorded}, but "
                f"according to the settings it was {price}"
            )
        record.findings.ok(
            DATASET_FILE,
            f"measuring the constants with noise was {price}, as {DATASET_FILE} says",
        )
    if not record.spent:
        if record.holds(CLAIM_FILE):
            record.findings.problem(
                "budget",
                f"{CLAIM_FILE} is about a release, but spent.json, which says how much budget the "
                "release spent, is missing",
            )
        return ()
    simulated = _is_simulated(record, None)
    with record.findings.looking("claim"):
        mechanism = measurement(record.config)
        if record.relation is None:
            raise Broken(
                "the claim could not be recomputed, because config.yaml does not name a relation "
                "(entry 'relation')"
            )
        granted = claim(record.conditions, record.relation, mechanism, output=Output.CONSTANTS)
        granted = replace(granted, simulated=simulated)
        _compare_spent(record, granted)
        claimed = _read_claim(record, simulated)
        _compare_claim(claimed, granted, record)
        return granted.text, *granted.total_sentences
    return ()


def _is_simulated(record: Record, seed: object) -> bool:
    """Whether the draws came from a seed; every file must agree."""
    simulated, findings = seed is not None, record.findings
    in_spent, in_metrics = record.spent.get("simulated"), record.metrics.get("simulated")
    if in_spent is not simulated or in_metrics != int(simulated):
        findings.problem(
            "draws",
            f"according to the seed in config.yaml, simulated should be {simulated}, but it is "
            f"{in_spent!r} in spent.json and {in_metrics!r} in metrics.json",
        )
    elif simulated:
        findings.note(
            "draws",
            "this is a SIMULATION: the answers were drawn from a seed and have no guarantee",
        )
    return simulated


# -- labels and weights
# --------------------------------------------------------------------------------------------------


def check_labels(record: Record, trained: Record | None) -> str | None:
    """As many labels as were counted, each of them one of the classes."""
    labels = labels_of(record)
    if labels is None:
        return None
    answered, left = (record.metrics.get(key) for key in ("answered", "unanswered"))
    if answered is not None and answered + left != record.metrics["n_queries"]:
        queries = record.metrics["n_queries"]
        raise Broken(
            f"metrics.json counts {answered} answered and {left} unanswered queries, but "
            f"{queries} queries in all (n_queries)"
        )
    rows = len(labels)
    if rows != (count := _counted(record)):
        raise Broken(f"the file of labels has {rows} rows, but metrics.json counts {count} labels")
    model = None if trained is None else trained.rebuilt_model
    if model is not None and model.number_votes is not None:
        drawn_from_sums = _names(record, LaplaceMean)
        return _check_numbers(labels, model.number_votes, drawn_from_sums)
    classes = [] if trained is None else trained.classes
    unknown = sorted(set(pc.unique(labels).to_pylist()).difference(classes)) if classes else []
    if unknown:
        label = unknown[0]
        raise Broken(f"the labels include {label!r}, which is not a class of the training run")
    found = f"the file of labels has {count} labels, as metrics.json says"
    if classes:
        return f"{found}, and each label is a class of the training run"
    return found


def _check_numbers(labels: pa.DictionaryArray, model: NumberVotes, drawn_from_sums: bool) -> str:
    """Return that each released number is one that the mechanism can have drawn.

    Args:
        labels: [n] the numbers as the file has them, as text.
        model: that they were drawn from, with its public constants.
        drawn_from_sums: each stands for a sum of the members' answers with noise; False: released
            weights gave it, which may be any number of the range.

    Raises:
        Broken: a label is no number, or none of the lattice on which noise was added.
    """
    try:
        numbers = np.array([float(word) for word in labels.dictionary.to_pylist()])
    except ValueError as error:
        raise Broken(f"the file of labels has a label that is no number ({error})") from None
    target = model.target
    if not ((numbers >= target.low) & (numbers <= target.high)).all():  # NaN compares false
        raise Broken(
            f"the file of labels has a number outside of the range [{target.low:g}, "
            f"{target.high:g}] of the training run"
        )
    if not drawn_from_sums:
        return (
            f"the file of labels has {len(labels)} numbers, as metrics.json says, and each is in "
            "the range of the training run"
        )
    points = model.settings.ensemble.members * LATTICE_STEPS
    with np.errstate(invalid="ignore", over="ignore"):
        shares = (numbers - model.target.low) / model.target.width
        nearest = np.rint(shares * points)
    # A label is the number of a sum; rounding may have moved the share by a few sums.
    possible = np.zeros(len(numbers), dtype=bool)
    for step in range(-2, 3):
        sums = np.clip(nearest + step, 0, points)
        possible |= model.mean_of(sums) == numbers
    if not possible.all():
        wrong = float(numbers[~possible][0])
        raise Broken(
            f"the mechanism cannot have drawn the released label {wrong!r}, because it draws only "
            "numbers of a public lattice, which does not contain this number"
        )
    return (
        f"the file of labels has {len(labels)} numbers, as metrics.json says, and each is on the "
        "lattice of the mechanism"
    )


def _counted(record: Record) -> Any:
    """How many labels were counted: a budget may end in the middle of a file."""
    return record.metrics.get("answered", record.metrics.get("n_queries"))


def labels_of(record: Record) -> pa.DictionaryArray | None:
    """[n] the labels that were released, in their order, each class's name once; None: there are
    none.

    Raises:
        Broken: the table is none that agt writes, or a parquet file of other rows than were
            counted.
    """
    name = next((name for name in LABEL_FILES if record.holds(name)), None)
    if name is None:
        return None
    content, named = record.read(name), LABEL_COLUMNS[1:]
    try:
        if name == LABEL_FILES[0]:
            rows = csv.reader(TextIOWrapper(BytesIO(content), "utf-8", newline=""), strict=True)
            columns, labels = (
                next(rows),
                pa.array((label for _, label in rows), pa.string()).dictionary_encode(),
            )
        else:
            # a row that agt writes holds a name in plain, 4 bytes and its letters; Snappy unpacks 3
            # bytes to 64 at most
            file = open_parquet(content, named, _counted(record), 6)
            columns, table = file.schema_arrow.names, file.read(named).unify_dictionaries()
            labels = table.column(0).combine_chunks()
        may_be_numbers = _names(record, LaplaceMean) or _names(record, NoisyStatistics)
        too_many = len(labels.dictionary) > MAX_CLASSES and not may_be_numbers
        if columns != LABEL_COLUMNS or too_many or labels.null_count:
            expected = " and ".join(LABEL_COLUMNS)
            raise ValueError(
                f"the columns must be {expected}, with a label in each row and at most "
                f"{MAX_CLASSES} different labels"
            )
    except (csv.Error, ValueError, OSError, IndexError, StopIteration, pa.ArrowException) as error:
        kind = "table" if name == LABEL_FILES[0] else "parquet file"
        raise Broken(f"{name} is not a valid {kind} of labels ({error})") from None
    return labels


def _names(record: Record, mechanism: type[Any]) -> bool:
    """Return whether the settings of a release name a mechanism of agt; nothing is loaded."""
    node = record.config.get("mechanism")
    name = f"{mechanism.__module__}.{mechanism.__qualname__}"
    return isinstance(node, Mapping) and current_name(str(node.get("_target_"))) == name


def check_weights(record: Record, trained: Record | None) -> str | None:
    """Released weights lie on their lattice; their noise is what their mechanism takes for this
    head.
    """
    if not record.holds(WEIGHTS_FILE):
        return None
    noise = record.json(WEIGHTS_FILE)
    check_lattice(read_released_weight(record), noise, record.findings)
    head = (
        None
        if trained is None or trained.rebuilt_model is None
        else trained.rebuilt_model.release_head
    )
    if head is None:
        return None
    classes = head.problem.dataset.target.class_count
    mechanism = cast(WeightsMechanism, asked_of(record).mechanism(classes, 1))
    simulated, drawn = record.config.get("seed") is not None, mechanism.noise(head)
    derived = {**mechanism.guarantee.parameters, **drawn, "simulated": simulated}
    check_match(WEIGHTS_FILE, noise, "this run's mechanism", derived)
    parameters = ", ".join(
        f"{name} = {value:.6g}" for name, value in drawn.items() if name != "step"
    )
    return f"the noise in {WEIGHTS_FILE} equals the recomputed noise: {parameters}"


def read_released_weight(record: Record) -> np.ndarray:
    """Return [1 or classes, outputs] the weights that a release drew.

    Raises Broken: they cannot be read.
    """
    try:
        return load_arrays(record.read(RELEASED_ARRAYS))["weight"]
    except SafetensorError as error:
        raise Broken(f"{RELEASED_ARRAYS} cannot be read ({error})") from None


def check_lattice(weight: np.ndarray, noise: Any, findings: Findings) -> None:
    """Released weights are multiples of a step that sigma alone decides: what is not was changed
    after the draw.
    """
    sigma, step = float(noise["sigma"]), float(noise["step"])
    if not (sigma > 0 and step == step_of(sigma)):
        raise Broken(
            f"the step of the released weights (the smallest unit of the noise) is {step!r}, "
            f"which does not belong to noise with sigma = {sigma!r}"
        )
    if not np.isfinite(weight).all() or np.fmod(weight, step).any():
        raise Broken(
            "a released weight is not a multiple of the step (the smallest unit of the noise), "
            "so the mechanism cannot have drawn this weight"
        )
    findings.ok(
        "weights",
        f"all {weight.size} released weights are multiples of the step (the smallest unit of the "
        f"noise) that belongs to sigma = {sigma:.6g}",
    )
