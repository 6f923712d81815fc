"""From labels and stable distances to labels that may be published."""

from agt.mechanisms import published  # noqa: F401  # so that mechanisms stand in its order, whichever module is asked for
