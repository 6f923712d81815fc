"""What small commands in this process need not do: it takes time, and tells a test nothing."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_fsync() -> Iterator[None]:
    """Files are not brought to a disk, as no power is cut here; processes of their own do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
