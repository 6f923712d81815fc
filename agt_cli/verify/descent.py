"""Compare a record with the training run that it was made from: its data and its conditions.

A record takes over the conditions of its training run with their facts. A condition may have become
weaker since (the data may have changed), but never stronger, and the facts of one that is as strong
as before are those of the training run, followed by those that count against it today. Weights that
are released have the facts of their own head first.
"""

from collections.abc import Sequence

from agt import __version__
from agt.certificates.conditions import Condition, weaker_conditions
from agt.facts import Standing
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.store.reading import Broken
from agt_cli.verify.comparison import check_match, mismatch
from agt_cli.verify.folders import Record, check_not_better, plain_conditions
from agt_cli.verify.release import requested_mechanism

DATA_KEYS = ("dataset", "data_digest", "features_digest")


def check_data(record: Record, trained: Record | None) -> None:
    """Raise Broken unless a record names the same data in env.json as its training run.

    Args:
        record: the record that is checked.
        trained: the training run that it was made from; None: nothing is compared.
    """
    if trained is None or trained.command != "train":
        return
    for key in DATA_KEYS:
        recorded = record.environment.get(key)
        trained_value = trained.environment.get(key)
        if recorded != trained_value:
            raise Broken(
                f"the entry '{key}' is {recorded} in env.json, but {trained_value} in env.json of "
                "the training run"
            )


def check_descent(record: Record, trained: Record | None) -> None:
    """Check that the conditions of a record, with their facts, are those of its training run.

    What was not compared is noted in ``record.findings``.

    Args:
        record: the record that is checked.
        trained: the training run that it was made from, or itself; None: it was not found.

    Raises:
        Broken: a condition is claimed more strongly than by the training run, or has other facts.
        ConfigError: the training run has no weights that such a release could have.
    """
    if not record.conditions:
        return
    if trained is not None and trained is not record:
        check_not_better(record, trained.conditions, "the training run")
    if reason := _reason_not_compared(record, trained):
        record.findings.unchecked(
            "conditions",
            f"the facts of the conditions in conditions.json were not compared, because {reason}",
        )
    elif trained is not None and trained is not record:
        _compare_facts(record, _inherited_conditions(record, trained))


def _reason_not_compared(record: Record, trained: Record | None) -> str:
    """Return why nothing determines the facts of a record's conditions; empty: something does.

    Those of a training run follow from its config.yaml, which agt_cli/verify/folders.py compares.

    Args:
        record: the record; it has conditions.
        trained: the training run that it was made from, or itself; None: it was not found.
    """
    if record.command == "measure":
        return "no other file determines them"
    if trained is None or trained.command != "train":
        return "the training run was not found in the state from which this was made"
    releases_weights = _weights_mechanism(record) is not None
    if releases_weights and trained.rebuilt_model is None:
        return "the model of the training run could not be read"
    # versions may state other facts, and those of released weights are computed again
    if (trained is record or releases_weights) and record.environment.get("agt") != __version__:
        return "another version of agt wrote them"
    return ""


def _weights_mechanism(record: Record) -> type[WeightsMechanism] | None:
    """Return the mechanism of a release of weights by ``agt predict``; None: it is none."""
    if record.command != "predict":
        return None
    kind = requested_mechanism(record).kind
    return kind if issubclass(kind, WeightsMechanism) else None


def _inherited_conditions(record: Record, trained: Record) -> Sequence[Condition]:
    """Return the conditions that a record takes over from its training run.

    Args:
        record: the record; if it releases weights, this version of agt wrote it.
        trained: the training run.

    Raises:
        ConfigError: the training run has no weights that such a release could have.
    """
    mechanism = _weights_mechanism(record)
    model = trained.rebuilt_model
    if mechanism is None or model is None:  # with a mechanism of weights, there is a model
        return trained.conditions
    # the weights may be those of another head than the model's, with facts of its own
    head = mechanism.releasable_head(model)
    return weaker_conditions(head.conditions, trained.conditions)


def _compare_facts(record: Record, inherited: Sequence[Condition]) -> None:
    """Check that the conditions of a record have the facts that they inherit, in the same order.

    A condition that is weaker than the inherited one, and facts that weaken it further, come from
    the data as they were when the record was made. Nothing determines them, so they are noted.

    Args:
        record: the record; takes the note.
        inherited: the conditions that it takes over, none of them weaker than the record's.

    Raises:
        Broken: a fact differs, is missing, or is proved in the record alone.
    """
    undetermined = []
    for expected, recorded in zip(inherited, record.conditions, strict=True):
        letter = recorded.letter
        if recorded.standing is not expected.standing:
            undetermined.append(letter)
            continue
        expected_facts = plain_conditions([expected])[0]["facts"]
        recorded_facts = plain_conditions([recorded])[0]["facts"]
        count = len(expected_facts)
        check_match(
            f"condition {letter} in conditions.json",
            recorded_facts[:count],
            "the training run",
            expected_facts,
            "facts",
        )
        added = recorded.evidence.facts[count:]
        if any(fact.standing is Standing.PROVED for fact in added):
            raise mismatch(
                f"condition {letter} in conditions.json",
                "the training run",
                "it has a further fact that is proved",
            )
        if added:
            undetermined.append(letter)
    if undetermined:
        letters = ", ".join(undetermined)
        record.findings.note(
            "conditions",
            f"facts that weaken the conditions {letters} in conditions.json were not compared, "
            "because no other file determines them",
        )
