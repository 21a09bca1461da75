"""The spirals are the paper's, and the record is the one of Mauna Loa."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sklode.data import load_co2, make_spirals


def test_spirals_lie_on_the_curves_of_the_paper() -> None:
    _, truth = make_spirals(4, 30, random_state=0)
    outward = truth.loc[1] - [5, 0]  # counterclockwise: r = 0.3 t at the angle t
    radius = np.hypot(outward["x"], outward["y"])
    angle = np.unwrap(np.arctan2(outward["y"], outward["x"]))
    np.testing.assert_allclose(np.diff(radius), 0.3 * np.diff(angle), atol=1e-9)
    inward = truth.loc[0] + [5, 0]  # clockwise: r = 15 / s at the angle s
    radius = np.hypot(inward["x"], inward["y"])
    angle = np.unwrap(np.arctan2(inward["y"], inward["x"]))
    assert (np.diff(angle) < 0).all()
    np.testing.assert_allclose(np.diff(15 / radius), np.diff(angle), atol=1e-9)


def test_spirals_share_their_positions_and_hold_the_first() -> None:
    observed, truth = make_spirals(6, 50, random_state=1)
    positions = [
        part.index.get_level_values(1) for _, part in observed.groupby(level=0)
    ]
    assert all(positions[0].equals(other) for other in positions[1:])
    assert positions[0][0] == 0
    assert len(positions[0].unique()) == 50
    assert positions[0].max() < 250
    assert truth.index.get_level_values(1).unique().tolist() == list(range(-62, 312))


def test_spirals_carry_noise_of_the_size_asked_for() -> None:
    observed, truth = make_spirals(100, 100, noise=0.3, random_state=2)
    assert (observed - truth.loc[observed.index]).to_numpy().std() == pytest.approx(
        0.3, rel=0.03
    )


def test_spirals_are_repeated_by_their_seed() -> None:
    first, again = (make_spirals(3, 10, random_state=5)[0] for _ in range(2))
    other = make_spirals(3, 10, random_state=6)[0]
    pd.testing.assert_frame_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("n_stamps", [0, 251])
def test_spirals_refuse_more_stamps_than_a_window_has(n_stamps: int) -> None:
    with pytest.raises(ValueError, match=rf"between 1 and 250; got {n_stamps}"):
        make_spirals(2, n_stamps)


def test_the_co2_record_has_lost_its_missing_weeks() -> None:
    pytest.importorskip("statsmodels")
    y = load_co2()
    gaps = y.index.to_series().diff().dropna().dt.days
    assert len(y) == 2284 - 59
    assert y.index.freq is None
    assert (gaps.min(), gaps.max()) == (7, 133)
    assert y.between(310, 375).all()
