"""Makes ``tests/synthetic.py`` importable from every test, and keeps tiny tensors on one thread."""

import contextlib
import sys

import pytest
import torch
from hypothesis import settings

settings.register_profile("agt", deadline=None, derandomize=True)  # the first call of a kernel compiles it
settings.load_profile("agt")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Thousands of matrices of a few elements are faster without handing them round."""
    torch.set_num_threads(1)


# An accountant of the test tools brings a logger that keeps the stderr of the moment, which is a test's own, and closes it
# when logging is configured anew: every later test would find its stderr closed. It may keep the process's.
with contextlib.suppress(ImportError):
    from absl import logging as absl_logging

    absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__
