"""From labels and stable distances to labels that may be published.

Mechanisms are listed in the order in which they are loaded here, whichever module is imported
first.
"""

from agt.mechanisms import optimal  # noqa: F401

# isort: split
from agt.mechanisms import argmax, published  # noqa: F401
