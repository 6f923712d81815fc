"""Every per-query mechanism by name: those that these modules define, then those of any other module that was imported."""

from agt.mechanisms import optimal, published, comparisons  # noqa: F401, I001  # tables list them in this order
from agt.mechanisms.mechanism import REGISTERED

MECHANISMS = REGISTERED
