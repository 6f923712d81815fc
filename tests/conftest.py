"""Makes ``tests/synthetic.py`` importable from every test, and keeps tiny tensors on one thread."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("agt", deadline=None, derandomize=True)  # the first call of a kernel compiles it
settings.load_profile("agt")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Thousands of matrices of a few elements are faster without handing them round."""
    torch.set_num_threads(1)
