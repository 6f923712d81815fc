"""report.md: the parts that reports share, and that of a training run."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agt.certificates.conditions import Condition
from agt.data.dataset import Dataset
from agt.facts import Standing
from agt.relations import RELATIONS
from agt.settings import BoxConfig, CertificateConfig, RelationConfig, RemovalConfig, TubeConfig
from agt_cli.report.markdown import Markdown, markdown_table, plain
from agt_cli.report.record import RunRecord, to_yaml


def ball(relation: RelationConfig) -> str:
    """What one k counts under a relation."""
    return RELATIONS[relation.name].ball_of(relation.unit_rows)


def guarantee(conditions: Sequence[Condition]) -> str:
    """One sentence: can these certificates carry a privacy guarantee?"""
    failed = [condition.letter for condition in conditions if not condition.held]
    if not failed:
        return f"{_standing(conditions)} through a release mechanism calibrated to the stable distance."
    verb = "does" if len(failed) == 1 else "do"
    which = f"condition{'' if len(failed) == 1 else 's'} {', '.join(failed)}"
    return f"These certificates cannot carry a privacy guarantee: {which} {verb} not hold."


def unmet(conditions: Sequence[Condition]) -> list[str]:
    """Lines for the console: what a guarantee of privacy still needs; none where the run is for unlearning."""
    failed = [condition for condition in conditions if not condition.held]
    if not failed or "g" in [condition.letter for condition in failed]:
        return []
    return ["no private answer can rest on this run yet (certificates are true as they stand):", *map(_asked, failed)]


def _asked(condition: Condition) -> str:
    return f"  condition {condition.letter}: {condition.grounds.missing}"


def _standing(conditions: Sequence[Condition]) -> str:
    declared = [c.letter for c in conditions if c.standing is Standing.DECLARED]
    if not declared:
        return "All conditions are proved here: these certificates can carry a privacy guarantee,"
    some = f"condition {declared[0]} rests" if len(declared) == 1 else f"conditions {', '.join(declared)} rest"
    return (
        f"No condition fails, and {some} on what was declared, which nothing here can check: as far as that is true, these "
        "certificates can carry a privacy guarantee,"
    )


def train_report(
    record: RunRecord,
    dataset: Dataset,
    relation: RelationConfig,
    certificate: CertificateConfig,
    conditions: tuple[Condition, ...],
    verdict: str,
    quality: Sequence[str],
    noise: Sequence[str] = (),
) -> str:
    """report.md of a training run.

    Args:
        verdict: a line on a model that is of no use; empty: none.
        quality: the section on how good it is.
        noise: what may be said of weights that were trained with noise, and of later removals, a line each.
    """
    metrics = [
        (name, f"{value:,.6g}" if isinstance(value, float) else str(value)) for name, value in record.metrics.items()
    ]
    parts = [
        *_trained(record, dataset, certificate, verdict),
        *counts_section(relation),
        *quality,
        "## Results",
        markdown_table(("metric", "value"), metrics),
        *_for_the_owner(dataset),
        *((_noise_title(certificate), "\n".join(f"- {line}" for line in noise)) if noise else ()),
        *conditions_section(conditions),
        "## Setting",
        setting_section(record.config),
        "## Next",
        f"    agt certify run={record.folder}",
    ]
    return "\n\n".join(parts) + "\n"


def _noise_title(certificate: CertificateConfig) -> str:
    return "## Removing records later" if isinstance(certificate, RemovalConfig) else "## The noisy weights"


def _for_the_owner(dataset: Dataset) -> list[str]:
    if not dataset.notes:
        return []
    warning = "How data and declaration fit. These sentences depend on the private data: they are not for publication."
    return ["## For the data owner", warning, "\n".join(f"- {plain(note)}" for note in dataset.notes)]


def _trained(record: RunRecord, dataset: Dataset, certificate: CertificateConfig, verdict: str) -> list[str]:
    useless = [f"**{plain(verdict)}**"] if verdict else []
    on = f"Trained on {len(dataset.train)} records"
    if isinstance(certificate, BoxConfig):
        bounds = f"{on}, with bounds on the parameters for k up to {record.metrics['k_max']}."
        return [f"# Training with bounds: {plain(dataset.name)}", *useless, bounds]
    if isinstance(certificate, TubeConfig):
        most, reached = record.metrics["k_max"], record.metrics["k_with_radius"]
        short = f" Beyond k = {reached} nothing bounds it, and nothing is certified." if reached != most else ""
        tube = (
            f"{on}. How far k can have moved the parameters is bounded step by step from the loss's curvature, for every "
            f"k up to {most} at once.{short} Every public constant: `tube.json`."
        )
        return [f"# Training a network in a curvature tube: {plain(dataset.name)}", *useless, tube]
    moved = float(record.metrics["moved_by_one_k"])
    return [
        f"# Training a linear head: {plain(dataset.name)}",
        *useless,
        f"{on}. One k moves the parameters by at most {moved:.4g} in norm, whatever the data: stable distances follow in "
        "closed form, for every k at once, and so does the noise that a release of the weights takes. Every constant: "
        "`stability.json`.",
    ]


def counts_section(relation: RelationConfig) -> list[str]:
    """What one k counts."""
    text = f"Neighbour relation `{relation.name}`: k counts **{ball(relation)}**."
    if relation.name == "paper_privacy":
        text += " So `paper_privacy` at k compares with `add_remove` at 2k, never at k."
    if not RELATIONS[relation.name].symmetric:
        text += " It speaks about deletions: for unlearning, not for privacy."
    return ["## What k counts", text]


def figures_section(dataset: str, captions: Mapping[str, str]) -> list[str]:
    """Each figure of a record with its caption.

    Args:
        captions: figure name -> what it shows.
    """
    words = {name: plain(text) for name, text in captions.items()}
    return [f"![{text}](figures/{name}.png)\n\n*{plain(dataset)}. {text}*" for name, text in words.items()]


def conditions_section(conditions: Sequence[Condition]) -> list[str]:
    """Whether a guarantee may rest on a run, and each condition."""
    rows = [(c.letter, c.name, Markdown(f"**{c.standing}**"), c.why) for c in conditions]
    return [
        "## Can a privacy guarantee rest on this?",
        guarantee(conditions),
        markdown_table(("", "asks", "stands", "why"), rows),
    ]


def setting_section(config: Mapping[str, Any]) -> str:
    """A resolved configuration, as yaml."""
    text = to_yaml(config).rstrip()
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", text)), default=2))
    return f"{fence}yaml\n{text}\n{fence}"
