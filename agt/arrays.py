"""The shapes of arrays that Python's front door takes and returns, by name.

n: records or queries; C: classes, in the order that the alias says.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[Any]
"""[n] values of the classes, numbers or text."""
ClassValues = NDArray[Any]
"""[C] the values that labels have, in the order of the classes."""
StableDistances = NDArray[np.int64]
"""[n] up to how many people's data cannot change each label; 0: not known of one."""
RecordIds = NDArray[Any]
"""[n] unique names of the records, whole numbers or text."""
UnitIds = NDArray[Any]
"""[n] whose each record is, whole numbers or text."""
PublicFlags = NDArray[np.bool_]
"""[n] True where a record is public."""
Margins = NDArray[np.float64]
"""[n] of class 1 over class 0; of more than two classes [n, C], each over the best other."""
Probabilities = NDArray[np.float64]
"""[n, C] from 0 to 1, each row's sum 1, in the order of ``classes_``."""
