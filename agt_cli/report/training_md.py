"""report.md of a training run."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from agt.certificates.conditions import Condition
from agt.data.dataset import Dataset
from agt.models.kind import BoundedQuantity, CertificateKind
from agt.relations import RELATIONS
from agt.settings import RelationConfig
from agt_cli.report.markdown import document, escape_markdown
from agt_cli.report.quality import ModelQuality
from agt_cli.report.record import RunRecord
from agt_cli.report.sections_md import (
    certified_section,
    conditions_section,
    metrics_table,
    next_section,
    report_headline,
)

NOTES_WARNING = (
    "This section compares the data with the declarations. Its sentences depend on the "
    "private data, so do not publish them."
)
CHOICE_BY_RESULTS = (
    "If you change the model, id, features or settings because of these results or agt's advice, "
    "claims of a release would be false. Choose on public rows (agt tune), or declare "
    "training.chosen_on=data (docs/releasing.md)"
)


def caution_advice(training: Mapping[str, Any]) -> list[str]:
    """Return advice on ``training.caution``, the recipe's one setting, as paragraphs.

    Returns:
        No paragraph where the settings are not the recipe's.
    """
    if training.get("chosen_on") != "recipe":
        return []
    caution = float(training.get("caution", 1))
    double = 2 * caution
    half = caution / 2
    return [
        (
            f"training.caution is {caution:g}. With training.caution={double:g}, stable distances "
            "would be about twice as large, but answers less accurate; with "
            f"training.caution={half:g}, stable distances would be about half as large, but "
            "answers more accurate (docs/recipe.md)"
        )
    ]


def train_report(
    record: RunRecord,
    dataset: Dataset,
    relation: RelationConfig,
    certificate: CertificateKind,
    conditions: tuple[Condition, ...],
    quality: ModelQuality,
    noise: Sequence[str],
) -> str:
    """Return report.md of a training run.

    Args:
        record: the record of the run, with its metrics.
        dataset: the dataset on which the model was trained.
        relation: the neighbour relation.
        certificate: the kind of certificate.
        conditions: the seven conditions of a privacy guarantee (docs/method.md).
        quality: the quality of the model, on the test records.
        noise: sentences on weights that were trained with noise, and on later removals.
    """
    described = _describe_training(record, dataset, relation, certificate)
    advice: list[str] = []
    if dataset.target.numeric is None:  # numbers have intervals, and no stable distances
        advice = caution_advice(record.config["training"])
    notes: list[str | Sequence[str]] = []
    if dataset.notes:
        notes = ["## For the data owner", NOTES_WARNING, dataset.notes]
    if noise:
        title = "## Removing records later" if certificate.own_erasure else "## The noisy weights"
        notes += [title, noise]
    return document(
        f"# Trained {described.model}: {escape_markdown(dataset.name)}",
        *report_headline(quality, len(dataset.train), relation, conditions),
        escape_markdown(quality.explanation),
        described.reach_of_k,
        *advice,
        *certified_section(relation, dataset.target.numeric is not None),
        *quality.section(),
        *notes,
        *conditions_section(conditions),
        *next_section(f"certify run={record.key_folder}"),
        "## Every number",
        metrics_table(record.metrics),
        "Settings: `config.yaml`.",
    )


class TrainingWords(NamedTuple):
    """A training in words.

    Attributes:
        model: a phrase that says what was trained.
        reach_of_k: sentences that say how far certificates go for this training.
    """

    model: str
    reach_of_k: str


_TRAINING_SENTENCES: dict[BoundedQuantity | Literal["numbers"], TrainingWords] = {
    "each parameter": TrainingWords(
        "with bounds",
        "The model was trained on {count:,} records, with bounds on each parameter for k up "
        "to {k_max}.",
    ),
    "vote counts": TrainingWords(
        "by votes",
        "The model was trained on {count:,} records, each of which is in one of {members} "
        "shards. Each shard has a small model of its own. {counted} All constants are in "
        "`votes.json`.",
    ),
    "numbers": TrainingWords(
        "an ensemble that answers with a median",
        "The model was trained on {count:,} records, each of which is in one of {members} "
        "shards. Each shard has a small model of its own, and the answer is the median of their "
        "numbers. All constants are in `votes.json`.",
    ),
    "norm": TrainingWords(
        "a linear head",
        "The model was trained on {count:,} records. Raising k by one moves the parameters by "
        "at most {moved_by_one_k:.4g} in norm, whatever the data are. The stable distances "
        "for every k, and the noise needed to release the weights, follow from this bound in "
        "closed form. All constants are in `stability.json`.",
    ),
}
"""What a certificate bounds, or that it answers with numbers -> the training, with placeholders."""
_FLIPS_COUNTED = (
    "Stable distances come from exact counts: how many labels must change before a member "
    "changes its answer, and how many members must change theirs before the vote changes."
)
_VOTES_COUNTED = (
    "A change of the training records can change only the votes of the members whose shards it "
    "affects, so stable distances are counted from the votes."
)


def _describe_training(
    record: RunRecord, dataset: Dataset, relation: RelationConfig, certificate: CertificateKind
) -> TrainingWords:
    """Return the training of a record in words."""
    counts_flips = RELATIONS[relation.name].counts_label_flips
    counted = _FLIPS_COUNTED if counts_flips else _VOTES_COUNTED
    answers_with_numbers = dataset.target.numeric is not None
    template = _TRAINING_SENTENCES["numbers" if answers_with_numbers else certificate.bounded]
    reach_of_k = template.reach_of_k.format(
        count=len(dataset.train), counted=counted, **record.metrics
    )
    return TrainingWords(template.model, reach_of_k)
