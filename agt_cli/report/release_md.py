"""report.md of a release: what is guaranteed, and what may be published."""

from collections.abc import Sequence

from agt_cli.report.markdown import plain
from agt_cli.report.record import RunRecord
from agt_cli.report.report_md import setting_section


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
        f"# Private labels: {plain(dataset)}",
        f"{plain(queries)}, answered by `{mechanism}`.",
        "## What is guaranteed",
        "\n".join(f"- {plain(line)}" for line in words),
        "## What may be published",
        publish,
        "## Setting",
        setting_section(record.config),
    ]
    return "\n\n".join(parts) + "\n"
