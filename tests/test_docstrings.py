"""The docstrings of the forecasters are whole, in whatever form Python keeps them."""

from __future__ import annotations

import inspect
import re
from inspect import cleandoc

import pytest

from sklode.forecasters.latent_ode import _documented
from tests.series import FORECASTERS

SECTIONS = ["Parameters", "Attributes", "References", "Examples"]


def names_under(section: str, text: str) -> set[str]:
    """Return the names that a numpydoc section describes."""
    _, _, after = text.partition(f"\n{section}\n{'-' * len(section)}\n")
    body = re.split(r"\n\w+\n-+\n", after)[0]
    heads = re.findall(r"^(\w[\w, ]*) : ", body, re.MULTILINE)
    return {name for head in heads for name in head.split(", ")}


@pytest.mark.parametrize("cls", FORECASTERS)
def test_every_parameter_is_documented_in_the_order_of_numpydoc(cls: type) -> None:
    text = inspect.getdoc(cls) or ""
    assert re.findall(r"\n(\w+)\n-+\n", text) == SECTIONS
    assert names_under("Parameters", text) == set(cls().get_params())
    assert "history_" in names_under("Attributes", text)


@pytest.mark.parametrize("cls", FORECASTERS)
def test_a_docstring_without_indentation_gives_the_same(cls: type) -> None:
    # Python takes it away by itself from 3.13 on
    text = cls.__doc__ or ""
    own = text[: text.index("Parameters\n---")]
    references = text[text.index("References\n---") : text.index("Examples\n---")]
    own += references
    for written in (own, own.replace("\n", "\n    ")):
        other = type(cls.__name__, (), {"__doc__": written})
        assert cleandoc(_documented(other).__doc__ or "") == cleandoc(text)
