"""What a message says to paste, pasted."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

# A name, its index or a column of it, and what it becomes, up to the end of a sentence
# or to what else may be done.
_LINE = re.compile(r"(?:: |; )(\w+(?:\.index|\[[^\]]+\])? = .+?)(?:\.$|; |, after |$)")


def mended(message: object, *, place: int = 0, **names: Any) -> dict[str, Any]:
    """Run one of the lines that a message has to paste; return all names."""
    names["pd"] = pd
    exec(_LINE.findall(str(message))[place], names)  # our own message
    return names
