"""The command line of agt: configurations in, run records out."""

from agt import __version__ as __version__

SWEEP_SUFFIX = "_sweep"  # how the folder of a sweep's jobs ends
