"""Where randomness comes from: the operating system's generator, or a seeded one for simulation.

A release is private only if nobody can predict the draws: SystemRandomness. What came from SeededRandomness is a
simulation: it says so (``simulated``) and carries no guarantee.
"""

import os
import secrets
from typing import Protocol

import numpy as np

from agt.errors import ConfigError


class Randomness(Protocol):
    """Uniform random numbers."""

    @property
    def simulated(self) -> bool:
        """True if the draws can be predicted, so that nothing drawn with them is a private release."""
        ...

    def words(self, n: int) -> np.ndarray:
        """[n, 2] uint64: n uniform 128-bit integers, the more significant half first."""
        ...

    def below(self, bound: int) -> int:
        """A uniform integer in 0..bound-1, exactly."""
        ...


class SystemRandomness:
    """The operating system's cryptographic generator."""

    simulated = False

    def words(self, n: int) -> np.ndarray:
        """[n, 2] uint64: n uniform 128-bit integers, the more significant half first."""
        return np.frombuffer(os.urandom(16 * n), dtype=np.uint64).reshape(n, 2)

    def below(self, bound: int) -> int:
        """A uniform integer in 0..bound-1, exactly."""
        return secrets.randbelow(bound)


class SeededRandomness:
    """A seeded generator (PCG64): the same seed gives the same draws. For simulation only.

    Raises:
        ConfigError: the seed is negative.
    """

    simulated = True

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ConfigError(f"seed = {seed}: give an integer >= 0")
        self._generator = np.random.default_rng(seed)

    def words(self, n: int) -> np.ndarray:
        """[n, 2] uint64: n pseudo-random 128-bit integers, the more significant half first."""
        return self._generator.integers(0, 2**64, size=(n, 2), dtype=np.uint64)

    def below(self, bound: int) -> int:
        """A pseudo-random integer in 0..bound-1: as many bits as the bound has, again until they are below it."""
        bits = bound.bit_length()
        while True:
            draw = int.from_bytes(self._generator.bytes((bits + 7) // 8), "little") & ((1 << bits) - 1)
            if draw < bound:
                return draw
