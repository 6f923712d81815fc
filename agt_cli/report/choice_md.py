"""report.md of a choice of settings on public rows."""

from pathlib import Path

import pandas as pd

from agt_cli.report.console import format_decimals
from agt_cli.report.markdown import document, markdown_table
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section


def tune_report(
    table: pd.DataFrame, chosen_row: int, rule: str, rows: str, path: Path, record: RunRecord
) -> str:
    """Return report.md of a choice of settings.

    Args:
        table: a row for each candidate, with the columns settings, NAME (the mean of a score) and
            NAME_se (its standard error).
        chosen_row: the row that was chosen.
        rule: a clause that says how it was chosen.
        rows: the public rows, as the object of a sentence.
        path: the experiment file.
        record: the record of the command.
    """
    names = [name for name in table.columns if f"{name}_se" in table.columns]
    lines = []
    for index, candidate in table.iterrows():
        cells = [candidate["settings"]]
        for name in names:
            mean = format_decimals(candidate[name])
            error = format_decimals(candidate[f"{name}_se"])
            cells.append(f"{mean} ± {error}")
        if index == chosen_row:
            cells = [f"**{cell}**" for cell in cells]
        lines.append(cells)
    chosen = table["settings"][chosen_row]
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
