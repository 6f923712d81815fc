"""How good the model of ``agt start`` is on the test rows, beside usual learners."""

from collections.abc import Mapping

import numpy as np

from agt.data.records import Records
from agt.mechanisms.planning import Plan
from agt.models.model import Model
from agt_cli.report.scoring import Estimate, Scores, Scoring
from agt_cli.report.start_md import OURS, Comparison
from agt_cli.start.plan import weights_release
from agt_cli.start.settings import StartSettings


def compare(
    settings: StartSettings,
    scoring: Scoring,
    model: Model,
    test: Records,
    *,
    reference_scores: Mapping[str, Scores],
    planned: Plan,
    eps: float,
) -> Comparison:
    """Return how good the model is on the test rows, beside others and a constant answer.

    Args:
        settings: the purpose says whether answers are to be published.
        scoring: how answers are scored.
        model: the trained model.
        test: the rows that were kept out of training.
        reference_scores: name -> scores of usual learners on the same rows.
        planned: what could be released of the model.
        eps: the total budget that it was planned with.
    """
    constant_answer = scoring.constant(test.labels)
    private = None
    weights = weights_release(planned)
    held = all(condition.held for condition in model.conditions)
    if settings.purpose != "certificates" and held and weights:
        private = weights.expected
    legend = scoring.legend(test.labels)
    scores = {
        OURS: scoring.scores(model.predict(test.features), test.labels),
        **reference_scores,
        constant_answer.name: scoring.scores(
            np.full_like(test.labels, constant_answer.value), test.labels
        ),
    }
    return Comparison(
        scoring=scoring,
        rows=len(test),
        scores=scores,
        constant_answer=constant_answer,
        private=private,
        eps=eps,
        legend=[legend] if legend else [],
    )


def value_of(estimate: Estimate | None) -> float | None:
    """Return a score as a number; None: the score is not known."""
    return None if estimate is None else estimate.value
