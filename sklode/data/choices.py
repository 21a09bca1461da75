"""Names to choose from, and which one a misspelt name is likely to mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["check_choice", "did_you_mean"]


def did_you_mean(value: object, choices: Iterable[str]) -> str:
    """Return the question whether a choice near to ``value`` was meant; "" if none is.

    Capitals, hyphens, underscores and spaces do not count.
    """
    if not isinstance(value, str):
        return ""
    plain = {_plain(choice): choice for choice in sorted(choices)}
    near = difflib.get_close_matches(_plain(value), plain, n=1)
    return f' Did you mean "{plain[near[0]]}"?' if near else ""


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Check that an argument is one of its choices.

    Raises
    ------
    ValueError
        Naming the argument, the choices, what was received and what is near to it.
    """
    choices = list(choices)
    if not (isinstance(value, str) and value in choices):
        allowed = ", ".join(f'"{choice}"' for choice in choices)
        raise ValueError(
            f"{name} must be one of {allowed}; got {value!r}."
            + did_you_mean(value, choices)
        )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ")
