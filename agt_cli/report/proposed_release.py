"""The command that publishes answers, as the pages of several commands propose it.

What it proposes depends on public values alone (docs/releasing.md, "What may decide a choice").
"""

import shlex
from pathlib import Path

QUERIES = "inputs=FILE"
"""The word of a proposed command in whose place the owner names a file."""
QUERIES_MEANING = "FILE: your queries."
HEAD = "HEAD"
"""The word of a proposed command in whose place the owner names a ledger's head file."""
HEAD_MEANING = "HEAD: a new file on another disk, such as /mnt/stick/{dataset}.head."
# In the order in which weights are proposed. On the five public tables of
# docs/release_measurements.md the first was mostly ahead.
WEIGHTS_MECHANISMS = ("noisy_statistics", "release_weights", "objective_perturbation")
MECHANISM_OF_VOTES = "noisy_argmax"
MECHANISM_OF_LABELS = "randomized_response"
"""The mechanisms that are proposed where no weights can be released.

Both take any number of classes. Which one is better depends on private records (``agt plan``).
"""


def release_command(
    run: Path | str, mechanism: str, eps: str, delta: str, ledger: str | None = None
) -> str:
    """Return the command that releases answers to a file of queries, without the word agt.

    Args:
        run: the training run's folder.
        mechanism: the mechanism's name.
        eps, delta: the total budget, as it is typed.
        ledger: the name of the ledger that counts the release; None: the command names none.
    """
    counted = "" if ledger is None else f"ledger={shlex.quote(ledger)} "
    release = f"mechanism={mechanism} total.eps={eps} total.delta={delta}"
    return f"predict run={run} {counted}{QUERIES} {release}"
