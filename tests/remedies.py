"""What a message says to paste, pasted."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

# A name, its index or a column of it, and what it becomes, up to the end of a sentence
# or to what else may be done.
_LINE = re.compile(r"(?:: |; )(\w+(?:\.index|\[[^\]]+\])? = .+?)(?:\.$|; |, after |$)")


def mended(message: object, **names: Any) -> dict[str, Any]:
    """Run the first line that a message has to paste; return all names."""
    names["pd"] = pd
    (line, *_) = _LINE.findall(str(message))
    exec(line, names)  # our own message
    return names
