"""The package that reproduces the papers, under the one name that it has everywhere.

In a source tree its modules lie in experiments/, beside this package. A wheel holds them in the
folder agt_cli/_experiments, which Python takes instead of this file. A package ``experiments`` of
somebody else's is never imported, wherever it lies.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[1] / "experiments")]
