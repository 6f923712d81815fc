"""Recompute what a release records of its budget, and its claim, and compare the two.

Formal guarantees
    * Nothing that a record says of its budget is taken from its text. The guarantee of one answer
      is made from the mechanism's parameters, the totals by agt/mechanisms/composition.py from that
      guarantee and the number of answers, and whether it may be claimed by
      agt/mechanisms/judging.py from the conditions as recorded. What differs from the record is a
      problem, whichever of the two is larger.
    * What is not shown: that the draws were made with those parameters.

A claim is a function of the training run's model, the mechanism's settings, the counts and the
ledger's account that the claim names. Fields are compared. Sentences are a function of the fields,
but each version of agt may word them differently, so they are compared as a whole, and only if this
version wrote them. No code that is not part of agt is loaded.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, cast

from agt import __version__, sentences
from agt.certificates.conditions import weaker_conditions
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Claim, describe_neighbours, read_claim
from agt.mechanisms.composition import total
from agt.mechanisms.guarantees import Guarantee, PureDP, read_guarantee
from agt.mechanisms.judging import Claimable, judge_claim
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.measurement import Measurement
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import MechanismConfig
from agt.mechanisms.output import Output
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.totals import claim_of_labels, total_of_weights
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.models.model import Model
from agt.release import NumberRelease, ReleaseTerms, judge_labelling
from agt.settings import RelationConfig, TotalConfig, plain_of, validate
from agt.store.reading import MAX_TEXT_BYTES, Broken
from agt.store.yaml_text import parse_yaml
from agt_cli.ledger_files import NO_LEDGER
from agt_cli.report.markdown import Findings
from agt_cli.verify.comparison import check_match, rendered_alike
from agt_cli.verify.environment import compare_spent
from agt_cli.verify.folders import Record, check_version, model_of
from agt_cli.verify.pages import CLAIM_FILE, is_line_by_line

DATASET_FILE = "dataset.yaml"
AFTER_ERASURE = (
    "if an erasure has changed the run since, the page that `agt verify` wrote before the erasure "
    "shows this check"
)
_KINDS = {("eps",): "pure", ("eps", "delta"): "approximate", ("mu",): "gaussian"}


def guarantee_from_parameters(parameters: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee that the entries eps, delta and mu of ``parameters`` describe.

    An entry that is None is taken as absent. Other entries are ignored.

    Raises:
        KeyError: the entries are not those of a guarantee: eps; eps and delta; or mu.
        ConfigError: a value is out of its range.
    """
    keys = tuple(key for key in ("eps", "delta", "mu") if parameters.get(key) is not None)
    return read_guarantee({"kind": _KINDS[keys], **{key: parameters[key] for key in keys}})


def measurement_from_config(config: Mapping[str, Any]) -> Measurement:
    """Return the mechanism that the configuration of a run of ``agt measure`` describes."""
    relation: RelationConfig = validate(RelationConfig, config["relation"], "relation")
    return Measurement(float(config["total"]["eps"]), float(config["total"]["delta"]), relation)


def requested_mechanism(record: Record) -> MechanismConfig:
    """Return the mechanism and the total budget that the settings of a release ask for."""
    return MechanismConfig.from_settings(
        record.config["mechanism"], validate(TotalConfig, record.config.get("total"), "total")
    )


def check_release(record: Record, trained: Record | None) -> tuple[str, ...]:
    """Check the budget of a release and its claim, and note the results in ``record.findings``.

    Args:
        record: the record of the release.
        trained: the training run that it was made from; None: it was not found.

    Returns:
        Sentences that say what may be claimed of the release. Empty: a problem was found, or
        nothing is proved and the training run is not there.
    """
    findings = record.findings
    model = model_of(trained)
    if not record.spent:
        return _check_free(record, model)
    simulated = _check_simulated(record, record.config.get("seed"))
    claimed = None
    with findings.recording_errors(CLAIM_FILE):
        claimed = _read_claim(record, simulated)
    if model is None:
        findings.unchecked(
            "claim",
            "the claim could not be recomputed, because the training run could not be read in "
            "the state that the release used",
            AFTER_ERASURE,
        )
    with findings.recording_errors("budget" if model is None else "claim"):
        derived = _derive_claim(record, model, claimed, simulated)
        if claimed is not None and (model is not None or derived.proved or claimed.proved):
            _compare_claim(claimed, derived, record)
        sentence = derived.text
        if model is not None:
            findings.ok(
                "claim",
                f"the claim was recomputed from the model, the mechanism, the number of answers "
                f"and the ledger: {sentence}",
            )
        elif claimed is None:
            # the sentence names neighbouring datasets, which neither a claim nor a model gives
            sentence = str(derived.guarantee)
        if derived.proved or model is not None:
            totals = [sentences.UNFIXED] if derived.one_by_one else derived.total_sentences
            return (sentence, *totals)
    return ()


def _derive_claim(
    record: Record, model: Model | None, claimed: Claim | None, simulated: bool
) -> Claim:
    """Recompute the privacy claim that agt predict makes of a release, with its totals.

    The claim is compared with spent.json and metrics.json.

    Args:
        record: the record of the release.
        model: the model that the release was made from; None: it could not be read, so what the
            claim needs of it is taken from ``claimed`` (``_judge_claim``).
        claimed: the claim in claim.json; None: it cannot be read.
        simulated: the draws came from a seed.

    Raises:
        Broken: spent.json or metrics.json has other values, or the release spent more than its
            settings ask for.
        ConfigError: the settings are not possible, or such a release would be refused.
    """
    requested = requested_mechanism(record)
    delta = requested.total.delta
    released_count = int(record.spent["queries"])
    one_by_one = is_line_by_line(record)
    mechanism = _used_mechanism(record, model)
    derived = replace(_judge_claim(record, model, mechanism, claimed), simulated=simulated)
    if derived.output is Output.LABELS:
        derived = claim_of_labels(derived, released_count, delta)
    elif derived.output is Output.WEIGHTS:
        derived = replace(derived, totals=(total_of_weights(derived.guarantee, delta),))
    else:
        derived = replace(derived, answers=released_count)
    _check_total(requested.total, derived, released_count)
    _check_counts(record, derived, released_count, one_by_one)
    metrics = {"simulated": int(simulated), **derived.guarantee.parameters}
    # Without a model the relation may only be assumed (``_judge_claim``), so a proof is compared
    # only if one is claimed.
    if isinstance(mechanism, CertifiedQuantile):
        metrics["fraction"] = mechanism.fraction
    if model is not None or record.metrics.get("proved"):
        metrics["proved"] = int(derived.publishable)
    record.check_metrics("config.yaml", **metrics)
    _compare_spent(record, derived)
    if not one_by_one:
        return derived
    # The totals of a session are those of all answers that it was allowed to give.
    maximum = requested.total.queries
    totals = claim_of_labels(derived, maximum, delta).totals if maximum else ()
    return replace(derived, one_by_one=True, most=maximum, totals=totals)


def _used_mechanism(record: Record, model: Model | None) -> Claimable:
    """Return the mechanism that the settings of a release give for the number of its queries.

    Args:
        record: the record of the release.
        model: the model that the release was made from; None: it could not be read.
    """
    requested = requested_mechanism(record)
    query_count = int(record.metrics.get("n_queries", 1))
    if is_line_by_line(record):
        query_count = requested.total.queries or 1  # as the session that answered them counted
    # without a model, any number of classes will do, because the guarantee does not depend on it
    class_count = 2 if model is None else model.problem.dataset.target.class_count
    return requested.mechanism(class_count, query_count)


def _check_total(requested: TotalConfig, derived: Claim, released_count: int) -> None:
    """Raise Broken if a release spent more than the total budget that its settings ask for.

    Args:
        requested: the total of the settings; without an eps there is nothing to check.
        derived: the claim that was recomputed for the release.
        released_count: how many answers were released.
    """
    if requested.eps is None:
        return
    guarantee = derived.guarantee
    answers = released_count if derived.output is Output.LABELS else 1
    spent = total(guarantee, answers, requested.delta)
    spent_eps = spent.eps
    # The eps of one number is exact; ``total`` rounds upwards.
    if derived.output is Output.NUMBER and isinstance(guarantee, PureDP):
        spent_eps = guarantee.eps
    if spent_eps > requested.eps:
        raise Broken(
            f"the release is {spent}, so it spent more budget than total.eps={requested.eps:g} "
            "allows"
        )


def _check_counts(record: Record, derived: Claim, released_count: int, one_by_one: bool) -> None:
    """Raise Broken unless metrics.json and spent.json state the same number of released answers.

    Labels that a ledger paid for in one go are not compared: some of the queries may have been
    answered from the ledger or not at all, so the two files count different things.

    Args:
        record: the record of the release.
        derived: the claim that was recomputed for it.
        released_count: how many answers spent.json counts.
        one_by_one: queries came line by line, so spent.json counts the answers that budget was
            reserved for, which metrics.json calls "reserved".
    """
    if derived.output is Output.WEIGHTS:
        record.check_metrics("spent.json", n_queries=released_count)
    elif derived.output is Output.LABELS and one_by_one:
        record.check_metrics("spent.json", reserved=released_count)
    elif derived.output is Output.LABELS and not record.spent.get("ledger"):
        record.check_metrics("spent.json", n_queries=released_count)


def _judge_claim(
    record: Record, model: Model | None, mechanism: Claimable, claimed: Claim | None
) -> Claim:
    """Return the claim of one answer of a release (or of its weights), without totals.

    Only the training run records the neighbouring datasets (``relation``) and whether training drew
    noise. Without its model, both are taken from ``claimed``, unchecked; without that as well,
    relation=add_remove and training without noise are assumed.

    Args:
        record: the record of the release.
        model: the model that the release was made from; None: it could not be read.
        mechanism: the mechanism that the settings of the release name.
        claimed: the claim in claim.json; None: it cannot be read.

    Raises:
        ConfigError: a release with these conditions would be refused.
    """
    rules = {
        "accounting": record.config.get("accounting", "rigorous"),
        "counting": record.config.get("counting", "distance"),
    }
    if model is not None:
        return _judge_claim_of_model(record, model, mechanism, rules)
    conditions = record.conditions
    relation = RelationConfig("add_remove")
    noisy = False
    if claimed is not None:
        relation = claimed.relation
        noisy = claimed.noisy
    if isinstance(mechanism, Mechanism | CertifiedQuantile | LaplaceMean):
        output = Output.NUMBER if isinstance(mechanism, CertifiedQuantile) else Output.LABELS
        return judge_claim(conditions, relation, mechanism, **rules, output=output, noisy=noisy)
    # Weights use no stable distances, and always need every condition: no rules apply to them.
    return judge_claim(conditions, relation, mechanism, output=Output.WEIGHTS, noisy=noisy)


def _judge_claim_of_model(
    record: Record, model: Model, mechanism: Claimable, rules: dict[str, Any]
) -> Claim:
    """Return the claim of one answer from a model (or of its weights), without totals.

    Args:
        record: the record of the release.
        model: the model that the release was made from.
        mechanism: the mechanism that the settings of the release name.
        rules: the settings ``accounting`` and ``counting``, which releases of weights ignore.

    Raises:
        ConfigError: such a release from this model would be refused.
    """
    conditions = record.conditions
    terms = ReleaseTerms(conditions=conditions, **rules)
    if isinstance(mechanism, Mechanism | LaplaceMean):
        return judge_labelling(model, mechanism, terms).claim
    if isinstance(mechanism, CertifiedQuantile):
        no_queries = model.problem.dataset.train.features[:0]
        return NumberRelease.judged(model, no_queries, mechanism, terms).claim
    settings = model.problem.settings
    head = cast(WeightsMechanism, mechanism).releasable_head(model)
    return judge_claim(
        weaker_conditions(conditions, head.conditions),
        settings.relation,
        mechanism,
        output=Output.WEIGHTS,
        noisy=settings.noise is not None,
    )


def _compare_spent(record: Record, claim: Claim) -> None:
    """Compare spent.json with a claim that was recomputed for the release, and note the totals.

    Raises:
        Broken: spent.json has other values.
    """
    derived = {
        "what": claim.output.value,
        "mechanism": claim.mechanism,
        "simulated": claim.simulated,
        "guarantee": claim.guarantee.as_json,
        "totals": [asdict(one_total) for one_total in claim.totals],
    }
    compare_spent(record, derived, "the budget recomputed for this release")
    totals = "; ".join(claim.total_sentences)
    record.findings.ok("budget", f"recomputed: {totals}")


def _read_claim(record: Record, simulated: bool) -> Claim:
    """Read claim.json, and compare it with spent.json, the settings and the times of the release.

    The training run is not needed.

    Args:
        record: the record of the release.
        simulated: the draws came from a seed.

    Returns:
        The claim as recorded.

    Raises:
        Broken: claim.json does not match the other files.
    """
    claimed = read_claim(record.read(CLAIM_FILE, MAX_TEXT_BYTES))
    check_version(claimed.agt, CLAIM_FILE, record)
    spent = record.spent
    account = claimed.account
    in_claim = {
        "mechanism": claimed.mechanism,
        "releases": claimed.releases,
        "simulated": claimed.simulated,
        "guarantee": claimed.guarantee.as_json,
        "ledger": None if account is None else [account.population, account.entry],
    }
    ledger = spent.get("ledger") or {}
    in_files = {
        "mechanism": spent["mechanism"],
        "releases": int(spent["queries"]) if spent["what"] == Output.LABELS else 1,
        "simulated": simulated,
        "guarantee": spent["guarantee"],
        "ledger": [ledger.get("population"), ledger.get("entry")] if ledger else None,
    }
    check_match(CLAIM_FILE, in_claim, "spent.json and the settings", in_files)
    began, ended = record.times
    if not began[:10] <= str(claimed.issued) <= ended[:10]:
        raise Broken(
            f"{CLAIM_FILE} was issued on {claimed.issued}, but the release was made from {began} "
            f"to {ended}"
        )
    record.findings.ok(
        CLAIM_FILE,
        f"the claim (format {claimed.schema}) was recomputed, and its totals and curve do not "
        "understate the privacy loss",
    )
    return claimed


def _compare_claim(claimed: Claim, derived: Claim, record: Record) -> None:
    """Raise Broken unless a release's recorded privacy claim equals the recomputed one.

    Which ledger counts the release, if any, is taken from the recorded claim; the ledger itself is
    compared elsewhere (``agt_cli.verify.ledgers``).

    Args:
        claimed: the claim in claim.json.
        derived: the claim that was recomputed for the release, without a ledger.
        record: the record of the release; takes the findings.
    """
    account: Account | Uncounted | None = claimed.account
    if claimed.account is not None:
        account = replace(claimed.account, counts="answers" if derived.one_by_one else "entry")
    elif not derived.simulated:
        account = _reason_uncounted(claimed, record)
    compare_claims(claimed, derived.with_account(account), record.findings)


def _reason_uncounted(claimed: Claim, record: Record) -> Uncounted:
    """Return the claim's statement that no ledger counts the release, after checking its reason.

    The reason follows from the setting ``ledger``, or from env.json, which records AGT_LEDGER. The
    ledgers that the statement lists cannot be checked, which is noted.

    Raises:
        Broken: the claim gives another reason, or has no such statement.
    """
    uncounted = claimed.uncounted
    expected = "declined" if record.named_ledger == NO_LEDGER else "unnamed"
    reason = None if uncounted is None else uncounted.why
    if uncounted is None or reason != expected:
        raise Broken(
            f"{CLAIM_FILE} does not match this release: its field 'uncounted.why' is {reason!r}, "
            f"but should be {expected!r}"
        )
    if reason == "declined":
        words = (
            "the claim lists the ledgers that were in the working directory at the release (in "
            "its fields 'uncounted.ledgers' and 'uncounted.unopened'). This list cannot be "
            "checked, because no other file contains it"
        )
        record.findings.unchecked("ledgers", words)
    return uncounted


def compare_claims(claimed: Claim, derived: Claim, findings: Findings) -> None:
    """Check that two claims have the same fields, and that the first one's sentences match them.

    The date of issue and the version of agt may differ. Sentences that another version of agt wrote
    are not compared, which is noted.

    Args:
        claimed: the claim as recorded.
        derived: the claim as recomputed.
        findings: takes the note.

    Raises:
        Broken: a field differs, or the sentences do not match the fields.
    """
    derived = replace(derived.for_file(), issued=claimed.issued, agt=claimed.agt)
    no_words: dict[str, Any] = {"words": [], "outside": []}
    fields = plain_of(claimed) | no_words
    expected_fields = plain_of(derived) | no_words
    check_match(CLAIM_FILE, fields, "this release", expected_fields)
    if claimed.agt != __version__:
        findings.unchecked(
            "words",
            f"the sentences in {CLAIM_FILE} were not compared, because agt {claimed.agt} wrote "
            f"{CLAIM_FILE}, but this is agt {__version__}, which may word sentences differently",
        )
        return
    expected = claimed.for_file()
    sentences_match = rendered_alike(
        (claimed.words, claimed.outside), (expected.words, expected.outside)
    )
    if not sentences_match:
        raise Broken(
            f"the sentences in {CLAIM_FILE} (fields 'words' and 'outside') do not match the other "
            "fields"
        )


def _check_free(record: Record, model: Model | None) -> tuple[str, ...]:
    """Check that a release without spent.json needed no budget, and note the result.

    It needed none if weights that were released earlier answered, or if every answer was one that a
    ledger had stored.

    Args:
        record: the record of the release; takes the result.
        model: the model that the release was made from; None: it could not be read.

    Returns:
        A sentence that says so; empty: the missing spent.json is a problem.
    """
    config = record.config
    if config.get("release"):
        return (sentences.FREE,)
    answered = record.metrics.get("answered")
    stored = record.metrics.get("stored")
    all_stored = type(stored) is int and stored == answered
    record.compared.add("stored")
    has_ledger = config.get("ledger") != NO_LEDGER and config.get("seed") is None
    is_free = all_stored and (not answered or has_ledger)
    right = (
        f"according to metrics.json, all {stored} answers came from a ledger, which stored them "
        "and paid for them when they were drawn"
    )
    wrong = (
        "spent.json is missing, although these answers come neither from a ledger nor from "
        "weights released earlier, so the budget that they spent is not known"
    )
    record.findings.compare("budget", is_free, right, wrong)
    with record.findings.recording_errors("claim"):
        if is_free and model is not None:
            derived = _judge_claim(record, model, _used_mechanism(record, model), None)
            parameters = derived.guarantee.parameters
            proved = int(derived.publishable)
            record.check_metrics("config.yaml", proved=proved, simulated=0, **parameters)
    return (sentences.FREE,) if is_free else ()


def check_measured(record: Record) -> tuple[str, ...]:
    """Check a record of ``agt measure``: its budget, its claim and the price in dataset.yaml.

    Returns:
        Sentences that say what may be claimed of the measured constants; empty: nothing was spent,
        or a problem was found.
    """
    record.run_check(DATASET_FILE, _check_price)
    if not record.spent:
        if record.holds(CLAIM_FILE):
            record.findings.problem(
                "budget",
                f"{CLAIM_FILE} is about a release, but spent.json, which says how much budget the "
                "release spent, is missing",
            )
        return ()
    simulated = _check_simulated(record, None)
    with record.findings.recording_errors("claim"):
        mechanism = measurement_from_config(record.config)
        record.check_metrics(
            "config.yaml", simulated=int(simulated), **mechanism.guarantee.parameters
        )
        if record.relation is None:
            raise Broken(
                "the claim could not be recomputed, because config.yaml does not name a relation "
                "(entry 'relation')"
            )
        derived = judge_claim(
            record.conditions, record.relation, mechanism, output=Output.CONSTANTS
        )
        derived = replace(derived, simulated=simulated)
        _compare_spent(record, derived)
        claimed = _read_claim(record, simulated)
        _compare_claim(claimed, derived, record)
        return derived.text, *derived.total_sentences
    return ()


def _check_price(record: Record) -> str:
    """Check that dataset.yaml states the price that measuring its constants had.

    Whoever trains with these constants reads the price there. If another version of agt wrote it,
    it is not compared, which is noted.

    Returns:
        A sentence with the price.

    Raises:
        Broken: dataset.yaml states another price.
    """
    content = parse_yaml(record.read(DATASET_FILE, MAX_TEXT_BYTES), DATASET_FILE)
    recorded = (content.get("measurement") or {}).get("claim")
    mechanism = measurement_from_config(record.config)
    price = sentences.price(str(mechanism.guarantee), describe_neighbours(mechanism.relation))
    version = record.environment.get("agt")
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
    return f"measuring the constants with noise was {price}, as {DATASET_FILE} says"


def _check_simulated(record: Record, seed: object) -> bool:
    """Add what the record says of its draws to the findings, and return whether a seed made them.

    A seed made them if ``seed`` is not None. If spent.json or metrics.json says otherwise, that is
    noted as a problem.

    Args:
        record: the record of the release; takes the findings.
        seed: the seed in the settings; None: the draws were random.
    """
    simulated = seed is not None
    in_spent = record.spent.get("simulated")
    in_metrics = record.metrics.get("simulated")
    if in_spent is not simulated or in_metrics != int(simulated):
        record.findings.problem(
            "draws",
            f"according to the seed in config.yaml, simulated should be {simulated}, but it is "
            f"{in_spent!r} in spent.json and {in_metrics!r} in metrics.json",
        )
    elif simulated:
        record.findings.note(
            "draws",
            "this is a SIMULATION: the answers were drawn from a seed and have no guarantee",
        )
    return simulated
