"""What the pages of finished runs say: report.md of one small run of each kind."""

import pytest
from museum import FinishedRuns

TABLE = """
train/box | records added or removed
train/noisy | the weights in model.safetensors are (1, 1e-05)-DP for add_remove neighbours
train/noisy | publish either labels from this run's certificates or its noisy weights
train/removal | ## Removing records later
train/removal | records can be removed later without training again. After a removal, the weights
certify/box | can support a privacy claim
certify/box | For the data owner only
certify/box | records added or removed
predict/labels | 1-differentially private per query for add_remove neighbours (one record added or
predict/labels | all 20 together: (20, 0)-differentially private in all, by the basic composition
predict/labels | no ledger counts this release, although the privacy losses of all releases
predict/labels | `labels.csv` may be published. Repeating this command is another release
predict/number | 1-differentially private for the single published number
predict/number | The released number may be published.
predict/weights | Gaussian differentially private for add_remove neighbours
predict/weights | for any number of queries: (1, 1e-05)-differentially private in all
predict/paid | entry 3 of the ledger counts this release
unlearn/erased | trained from scratch on the
plan/linear | Nothing was released.
"""
"""Run (museum.py) and a sentence of its page."""


@pytest.mark.parametrize(
    ("run", "sentence"), [row.split(" | ", 1) for row in TABLE.strip().splitlines()]
)
def test_a_page_says(finished_runs: FinishedRuns, run: str, sentence: str) -> None:
    text = (finished_runs[run] / "report.md").read_text()
    assert sentence in " ".join(text.replace("\\", "").replace("**", "").split())
