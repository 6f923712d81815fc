"""report.md of plan and predict: what was asked, what it costs, what it says, and what may be published."""

from collections.abc import Sequence

import pandas as pd

from agt.certificates.conditions import Condition
from agt_cli.report.record import RunRecord
from agt_cli.report.report_md import conditions_section, markdown_table, setting_section


def predict_report(
    dataset: str, queries: str, mechanism: str, words: Sequence[str], publishable: str | None, record: RunRecord
) -> str:
    """report.md of a release.

    Args:
        words: the claim, the totals and the caveats, a line each.
        publishable: what the guarantee covers; None: nothing, in a simulation or where a condition is missing.
    """
    rest = "The rest of this folder, the run it was made from, and how long it took are for the data owner."
    publish = (
        f"{publishable}, once. {rest}" if publishable else "Nothing: no guarantee holds. All of it is for the data owner."
    )
    parts = [
        f"# Private labels: {dataset}",
        f"{queries}, answered by `{mechanism}`.",
        "## What is guaranteed",
        "\n".join(f"- {line}" for line in words),
        "## What may be published",
        publish,
        "## Setting",
        setting_section(record.config),
    ]
    return "\n\n".join(parts) + "\n"


def plan_report(
    dataset: str,
    queries: str,
    recommendation: str,
    table: pd.DataFrame,
    conditions: tuple[Condition, ...],
    captions: dict[str, str],
    record: RunRecord,
) -> str:
    """report.md of a plan.

    Args:
        table: one row for each mechanism and budget.
        captions: figure name -> what it shows.
    """
    rows = [tuple(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row) for row in table.values]
    parts = [
        f"# What private answers would cost: {dataset}",
        recommendation,
        f"Every number is an exact expectation over a mechanism's own coin flips, on {queries}, which are taken to be "
        "public. Nothing was released and nothing was drawn. The plan itself looks at private distances: it is for the "
        "data owner, and a mechanism or budget chosen by it is a choice that looked at private data, unless what was "
        "trained to make the plan is public too.",
        "## Accuracy by total budget and number of queries",
        markdown_table(tuple(name.replace("_", " ") for name in table.columns), rows),
        *(f"![{text}](figures/{name}.png)\n\n*{dataset}. {text}*" for name, text in captions.items()),
        *conditions_section(conditions),
        "## Setting",
        setting_section(record.config),
    ]
    return "\n\n".join(parts) + "\n"
