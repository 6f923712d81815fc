"""The command that publishes answers, as the pages of several commands propose it.

What it proposes depends on public values alone (docs/releasing.md, "What may decide a choice").
"""

from pathlib import Path

QUERIES = "inputs=FILE"
"""The word of a proposed command in whose place the owner names a file."""
QUERIES_MEANING = "FILE: your file of queries."
# In the order in which weights are proposed. On the five public tables of
# docs/release_measurements.md the first was mostly ahead.
WEIGHTS_MECHANISMS = ("noisy_statistics", "release_weights", "objective_perturbation")


LABEL_MECHANISMS = {True: "noisy_argmax", False: "randomized_response"}
"""Whether an ensemble votes -> the mechanism that is proposed for single labels.

Both take any number of classes. Which one is better depends on private records (``agt plan``).
"""


def release_command(run: Path | str, mechanism: str, eps: str, delta: str) -> str:
    """Return the command that releases answers to a file of queries, without the word agt.

    Args:
        run: the training run's folder.
        mechanism: the mechanism's name.
        eps, delta: the total budget, as it is typed.
    """
    release = f"mechanism={mechanism} total.eps={eps} total.delta={delta}"
    return f"predict run={run} {QUERIES} {release}"
