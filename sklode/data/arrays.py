"""Names of kinds of arrays, tables and keys."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating]
Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Frame: TypeAlias = pd.Series | pd.DataFrame
Key: TypeAlias = tuple[Hashable, ...]
"""Of a series, its label in each level of the index; () of a lone one."""
Levels: TypeAlias = tuple[Hashable, ...]
"""Of a category, in order."""

Columns: TypeAlias = tuple[
    Sequence[Hashable], Sequence[Hashable], Mapping[Hashable, Levels]
]
"""Names of y's columns and of X's, and the levels of those that are categories."""
