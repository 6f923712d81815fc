"""Public rows in two halves, so that settings are chosen on one and what they reach is reported on the other."""

import numpy as np

from agt.data.dataset import Records
from agt.data.ids import keyed_hash

KEY = "halves"  # public key of the hash


def halves(records: Records, key: str = KEY) -> tuple[Records, Records]:
    """(one half, the other): all rows of a unit in the same one, whichever other rows there are; by another key, others."""
    second = keyed_hash(records.units, key) >= np.uint64(2**63)
    return records.take(~second), records.take(second)
