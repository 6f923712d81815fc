"""report.md of a choice of settings on public rows."""

from pathlib import Path

import pandas as pd

from agt_cli.report.console import show
from agt_cli.report.markdown import document, markdown_table
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section


def tune_report(
    table: pd.DataFrame, at: int, rule: str, rows: str, path: Path, record: RunRecord
) -> str:
    """report.md of a choice.

    Args:
        table: a row for each candidate: settings, the mean of each score, and its standard error
            (``_se``).
        at: the row that was chosen.
        rule: how, in words.
        rows: the public rows, in words.
        path: of the experiment file.
    """
    names = [name for name in table.columns if f"{name}_se" in table.columns]
    cells = [
        table["settings"],
        *(table[name].map(show) + " ± " + table[f"{name}_se"].map(show) for name in names),
    ]
    lines = [
        [f"**{text}**" if i == at else text for text in row]
        for i, row in enumerate(zip(*cells, strict=True))
    ]
    chosen = table["settings"][at]
    return document(
        f"# Settings chosen on {rows}",
        f"Chosen: **{chosen}**, written to `{path}`. Rule of the choice: {rule}. Private "
        "records were not used: the numbers below depend only on rows that are declared "
        f"public, and on constants. Whoever trains with the file `{path}` also declares these "
        "rows public.",
        markdown_table(("settings", *names), lines),
        "Each number is the mean over the folds ± its standard error. The result of the "
        "chosen candidate is slightly too good, because it is the best of several.",
        "## Setting",
        setting_section(record.config),
    )
