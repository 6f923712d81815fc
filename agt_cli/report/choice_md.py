"""report.md of a choice of settings on public rows."""

from pathlib import Path

import pandas as pd

from agt_cli.report.console import format_decimals
from agt_cli.report.markdown import bold, document, markdown_table
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section


def tune_report(
    table: pd.DataFrame, chosen_row: int, rule: str, rows: str, path: Path, record: RunRecord
) -> str:
    """Return the text of report.md for a choice of settings.

    Args:
        table: a row for each candidate, with the columns settings, NAME (the mean of a score) and
            NAME_se (its standard error). Its index is 0, 1, ...
        chosen_row: the number of the chosen candidate's row, from 0.
        rule: a clause that says how it was chosen.
        rows: a phrase for the public rows, as the object of a sentence.
        path: the experiment file, to which the chosen settings were written.
        record: the record of the command; its configuration is shown.
    """
    score_names = [name for name in table.columns if f"{name}_se" in table.columns]
    cells = table[["settings"]].copy()
    for name in score_names:
        means = table[name].map(format_decimals)
        errors = table[f"{name}_se"].map(format_decimals)
        cells[name] = means + " ± " + errors
    rows_of_cells = cells.to_numpy().tolist()
    rows_of_cells[chosen_row] = [bold(cell) for cell in rows_of_cells[chosen_row]]
    chosen = table["settings"][chosen_row]
    return document(
        f"# Settings chosen on {rows}",
        f"Chosen: {bold(chosen)}, written to `{path}`. Rule of the choice: {rule}. Private "
        "records were not used: the numbers below depend only on rows that are declared "
        f"public, and on constants. Whoever trains with the file `{path}` also declares these "
        "rows public.",
        markdown_table(["settings", *score_names], rows_of_cells),
        "Each number is the mean over the folds ± its standard error. The result of the "
        "chosen candidate is slightly too good, because it is the best of several.",
        "## Setting",
        setting_section(record.config),
    )
