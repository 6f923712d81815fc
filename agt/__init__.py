"""agt: certified private machine learning. The library; the command line is the package ``agt_cli``."""

import os

__version__ = "0.2.0"

# Before anything loads OpenMP: PyTorch and Numba keep a pool of threads each, and by default an idle pool spins. On a
# machine with other work to do, spinning pools made one training step ten times slower. A short spin (tens of
# microseconds) bridges the gap from one small operation to the next.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
