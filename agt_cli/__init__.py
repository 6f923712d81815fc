"""The command line of agt: configurations in, run records out."""

from agt import __version__ as __version__
