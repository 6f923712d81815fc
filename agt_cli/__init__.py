"""The command line of agt: configurations in, run records out."""

import os

from agt import __version__ as __version__

# Before anything loads OpenMP: PyTorch and Numba keep a pool of threads each, and by default an
# idle pool spins. On a machine with other work to do, spinning pools made one training step ten
# times slower. A short spin (tens of microseconds) bridges the gap from one small operation to the
# next. The library leaves its user's process as it is.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# Settings are checked by pydantic alone. It would look through every installed package for plugins
# of its own, which takes a fortieth of the time of a mistake's answer.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

SWEEP_SUFFIX = "_sweep"  # how the folder of a sweep's jobs ends
