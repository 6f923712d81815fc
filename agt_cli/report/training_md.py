"""report.md of a training run."""

from collections.abc import Mapping, Sequence
from typing import Any

from agt.certificates.conditions import Condition
from agt.data.dataset import Dataset
from agt.models.kind import BoundedQuantity, CertificateKind
from agt.relations import RELATIONS
from agt.settings import RelationConfig
from agt_cli.report.markdown import document, plain
from agt_cli.report.quality import Quality
from agt_cli.report.quality_md import quality_row, quality_section
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section
from agt_cli.report.sections_md import (
    conditions_section,
    counts_section,
    headline,
    metrics_table,
    next_section,
)

NOTES_WARNING = (
    "How data and declaration fit. These sentences depend on the private data: they "
    "are not for publication."
)


def caution_words(training: Mapping[str, Any]) -> list[str]:
    """What the recipe's one knob would change; nothing where settings are not the recipe's."""
    if training.get("chosen_on") != "recipe":
        return []
    now = float(training.get("caution", 1))
    return [
        f"training.caution={now:g}: at {2 * now:g} stable distances are about twice as long and "
        "answers less accurate, at "
        f"{now / 2:g} the other way (docs/recipe.md)"
    ]


def train_report(
    record: RunRecord,
    dataset: Dataset,
    relation: RelationConfig,
    certificate: CertificateKind,
    conditions: tuple[Condition, ...],
    quality: Quality,
    noise: Sequence[str] = (),
) -> str:
    """report.md of a training run.

    Args:
        quality: on the test records.
        noise: what may be said of weights that were trained with noise, and of later removals, a
            line each.
    """
    kind, how = _trained(record, dataset, relation, certificate)
    return document(
        f"# Training {kind}: {plain(dataset.name)}",
        *headline(quality_row(quality.whole), record.metrics, len(dataset.train), relation),
        how,
        record.standings,
        *counts_section(relation),
        *quality_section(quality),
        *(("## For the data owner", NOTES_WARNING, dataset.notes) if dataset.notes else ()),
        *(
            (
                "## Removing records later" if certificate.own_erasure else "## The noisy weights",
                noise,
            )
            if noise
            else ()
        ),
        *conditions_section(conditions),
        *next_section(f"certify run={record.place}"),
        "## Every number",
        metrics_table(record.metrics),
        "## Setting",
        setting_section(record.config),
    )


_TRAINED: dict[BoundedQuantity, tuple[str, str]] = {
    "each parameter": ("with bounds", "{on}, with bounds on the parameters for k up to {k_max}."),
    "vote counts": (
        "votes",
        "{on}, each in one of {members} shards, with a small model for each: {counted}. Every "
        "constant: `votes.json`.",
    ),
    "norm": (
        "a linear head",
        "{on}. One k moves the parameters by at most {moved_by_one_k:.4g} in norm, whatever the "
        "data: stable distances "
        "follow in closed form, for every k at once, and so does the noise that a release of the "
        "weights takes. Every "
        "constant: `stability.json`.",
    ),
}
"""What a certificate bounds -> (what was trained, how far a k reaches in it)."""


def _trained(
    record: RunRecord, dataset: Dataset, relation: RelationConfig, certificate: CertificateKind
) -> tuple[str, str]:
    """(what was trained, how far a k reaches in it)."""
    counted = (
        "the labels that must change before a member answers otherwise are counted exactly, and "
        "from these the vote's"
        if RELATIONS[relation.name].counts_label_flips
        else "one k changes the votes of the members that it reaches, and stable distances are "
        "counted from the votes"
    )
    kind, how = _TRAINED[certificate.bounded]
    on = f"Trained on {len(dataset.train):,} records"
    return kind, how.format(on=on, counted=counted, **record.metrics)
