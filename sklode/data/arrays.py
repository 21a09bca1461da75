"""Names of kinds of arrays, tables and keys."""

from collections.abc import Hashable
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating]
Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Frame: TypeAlias = pd.Series | pd.DataFrame
Key: TypeAlias = tuple[Hashable, ...]  # of a series, by index level; () of a lone one
Levels: TypeAlias = tuple[Hashable, ...]  # of a category, in order
