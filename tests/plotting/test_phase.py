"""Phase portraits: paths of states or columns, and where they go."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.quiver import Quiver

from sklode import StructuralForecaster
from sklode.plotting import plot_phase
from tests.series import panel, tiny, uneven_stamps, waves


@pytest.fixture(scope="module")
def forecaster() -> Any:
    return tiny(model="hybrid", guard=False, max_epochs=2, latent_size=3).fit(panel())


def paths(axes: Any) -> list[Any]:
    return [line.get_xydata() for line in axes.lines if len(line.get_xydata()) > 1]


def test_paths_are_those_of_the_states_named(forecaster: Any) -> None:
    index = panel().index
    axes: Any = plot_phase(forecaster, (2, 0), index=index)
    table = forecaster.trajectory(index).xs("mean", axis=1, level="statistic")
    drawn = paths(axes)
    assert len(drawn) == 3
    for own, key in zip(drawn, ("s0", "s1", "s2"), strict=True):
        np.testing.assert_allclose(own, table.loc[key][[2, 0]])
    assert [axes.get_xlabel(), axes.get_ylabel()] == ["state 2", "state 0"]
    legend = axes.figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["s0", "s1", "s2"]
    plt.close(axes.figure)


def test_by_default_a_path_goes_on_from_the_last_row_for_a_span() -> None:
    index = uneven_stamps(40)
    y = pd.DataFrame({"a": waves(index), "b": waves(index, 1)})
    forecaster = StructuralAsNetwork.of(y)
    axes: Any = plot_phase(forecaster, columns=("b", "a"))
    (own,) = paths(axes)
    (asked,) = forecaster.asked
    assert len(own) == 500
    assert asked[0] == index[-1]
    assert asked[-1] == index[-1] + (index[-1] - index[0])
    expected = forecaster.predict_at(asked)[["b", "a"]]
    np.testing.assert_allclose(own, expected)
    assert [axes.get_xlabel(), axes.get_ylabel()] == ["b", "a"]
    plt.close(axes.figure)


class StructuralAsNetwork(StructuralForecaster):
    """One that notes where it is asked, and has nothing to say of states."""

    asked: list[pd.Index]

    @classmethod
    def of(cls, y: pd.DataFrame) -> Any:
        made = cls().fit(y)
        made.asked = []
        return made

    def trajectory(self, index: pd.Index, X: Any = None) -> pd.DataFrame:
        raise AssertionError(index)

    def predict_at(self, index: pd.Index, X: Any = None) -> Any:
        self.asked.append(index)
        return super().predict_at(index, X)


@pytest.mark.parametrize("columns", [None, ("a", "b")])
def test_one_series_of_a_panel_is_drawn_alone(forecaster: Any, columns: Any) -> None:
    y = panel()
    if columns:
        both = pd.DataFrame({"a": y["y"], "b": y["y"] ** 2})
        forecaster = StructuralForecaster().fit(both)
    pair = columns or (0, 1)

    def drawn(**asked: Any) -> Any:
        axes: Any = plot_phase(forecaster, columns=columns, **asked)
        (own,) = paths(axes)
        plt.close(axes.figure)
        return own

    if columns:
        expected = forecaster.predict_at(y.index)
    else:
        expected = forecaster.trajectory(y.index).xs("mean", axis=1, level=1)
    expected = expected.loc["s1"][list(pair)]
    for asked in ("s1", ("s1",)):
        np.testing.assert_allclose(drawn(series=asked, index=y.index), expected)
    np.testing.assert_allclose(drawn(series="s1", index=expected.index), expected)
    assert len(drawn(series="s1")) == 500
    with pytest.raises(ValueError, match=r"stamps must hold \('s7',\); got \[\('s0',"):
        plot_phase(forecaster, columns=columns, series="s7")


def test_many_names_are_counted() -> None:
    many = tiny(model="hybrid", guard=False, latent_size=11).fit(waves())
    with pytest.raises(ValueError, match=r"7, 8\] and 2 more\. Draw what fits"):
        plot_phase(many, (0, 99))


def test_arrows_point_where_paths_go() -> None:
    index = uneven_stamps(400)
    phase = np.linspace(0, 12 * np.pi, 400)
    turning = pd.DataFrame({"x": np.cos(phase), "y": np.sin(phase)}, index)

    class Turning(StructuralAsNetwork):
        def predict_at(self, index: pd.Index, X: Any = None) -> Any:
            return turning

    axes: Any = plot_phase(Turning.of(turning), columns=("x", "y"), index=index)
    (arrows,) = (one for one in axes.collections if isinstance(one, Quiver))
    at = np.stack([arrows.X, arrows.Y], 1)
    to = np.stack([arrows.U, arrows.V], 1)
    # a circle is left at a right angle to the radius, counterclockwise
    across = at[:, 0] * to[:, 1] - at[:, 1] * to[:, 0]
    sizes = np.linalg.norm(at, axis=1) * np.linalg.norm(to, axis=1)
    assert len(at) > 20
    assert (across / sizes > 0.95).all()
    plt.close(axes.figure)


def test_a_single_stamp_is_a_dot() -> None:
    index = uneven_stamps(40)
    y = pd.DataFrame({"a": waves(index), "b": waves(index, 1)})
    forecaster = StructuralForecaster().fit(y)
    axes: Any = plot_phase(forecaster, columns=("a", "b"), index=index[:1])
    expected = forecaster.predict_at(index[:1])
    for line in axes.lines:
        np.testing.assert_allclose(line.get_xydata(), expected)
    assert not [one for one in axes.collections if isinstance(one, Quiver)]
    with pytest.raises(ValueError, match=r"has no key\. Leave series out"):
        plot_phase(forecaster, columns=("a", "b"), series="s0")


def test_what_cannot_be_drawn_is_refused(forecaster: Any) -> None:
    with pytest.raises(ValueError, match="must hold 7"):
        plot_phase(forecaster, (0, 7))
    names: Any = ("a", "b")
    pairs: list[dict[str, Any]] = [
        {"states": (0, 1, 2)},
        {"states": 0},
        {"columns": 1},
        {"states": "ab"},
    ]
    for pair in pairs:
        with pytest.raises(ValueError, match=r"two axes.*states=\(0, 1\), or two col"):
            plot_phase(forecaster, **pair)
    with pytest.raises(ValueError, match=r"drawn with columns=\('a', 'b'\)"):
        plot_phase(forecaster, names)
    for index in ("2026-03-05", panel().index[:0]):
        with pytest.raises(TypeError, match=r"one time stamp .*index=y\.index"):
            plot_phase(forecaster, index=index)
    kinds = "latent states .*LatentODEForecaster.*, with two columns of y as columns,"
    with pytest.raises(TypeError, match=kinds):
        plot_phase(StructuralForecaster().fit(waves(uneven_stamps(30))))
    with pytest.raises(TypeError, match="of this package; got a Series"):
        plot_phase(waves(), columns=("a", "b"))
    few = tiny(model="hybrid").fit(waves(uneven_stamps(20)))
    with pytest.raises(ValueError, match="guard=False"):
        plot_phase(few)
