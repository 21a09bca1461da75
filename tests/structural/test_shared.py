"""What a panel knows that its series do not: effects, age, doses, unseen series."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODERNNForecaster, StructuralForecaster
from tests.cases import mostly_slow, slow

DAYS = pd.date_range("2026-01-05", periods=60)


def table(names: list[str], stamps: Any, **columns: Any) -> pd.DataFrame:
    """Return a panel of equal stamps, of columns (series, stamp)."""
    index = pd.MultiIndex.from_product([names, stamps], names=["shop", "day"])
    return pd.DataFrame({k: np.ravel(v) for k, v in columns.items()}, index)


def parted(data: pd.DataFrame, n: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the first rows of each series, and the others."""
    is_past = data.index.get_level_values(1) < DAYS[n]
    return data[is_past], data[~is_past]


def shops(effect: Any = 8.0, n_shops: int = 12, seed: int = 0) -> pd.DataFrame:
    """Return shops of which the first four had no promotion in fifty days."""
    rng = np.random.default_rng(seed)
    promo = (rng.uniform(size=(n_shops, 60)) < 0.25) * 1.0
    promo[:4, :50], promo[:4, 55:] = 0.0, 1.0
    level = 20 + 3 * rng.normal(size=(n_shops, 1))
    noise = rng.normal(size=promo.shape)
    names = [f"s{k:02d}" for k in range(n_shops)]
    effects = np.broadcast_to(effect, n_shops)[:, None]
    return table(names, DAYS, y=level + effects * promo + noise, promo=promo)


def fitted(past: pd.DataFrame) -> StructuralForecaster:
    """Return a forecaster of y by the other columns."""
    forecaster = StructuralForecaster(random_state=0)
    return forecaster.fit(past[["y"]], X=past.drop(columns="y"))


def parts_of(forecaster: StructuralForecaster) -> pd.Index:
    """Return the names of what was found."""
    return forecaster.components_.index.get_level_values("part")


# Effects


def test_a_series_has_the_effect_that_others_have_shown() -> None:
    past, ahead = parted(shops(), 50)
    forecaster = fitted(past)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = forecaster.predict_at(ahead.index, X=ahead[["promo"]]).y
    on = (ahead.promo > 0) & (ahead.index.get_level_values(0) < "s04")
    assert on.sum() >= 20
    assert (found - ahead.y)[on].abs().mean() < 1.1
    every = forecaster.predict_interval(fh=DAYS[50:], X=ahead[["promo"]])
    low, high = every.reindex(ahead.index).to_numpy().T
    assert ((low < ahead.y) & (ahead.y < high)).mean() > 0.8


def test_series_that_do_not_share_an_effect_have_their_own() -> None:
    effects = np.tile([9.0, -9.0], 6)
    data = shops(effects)
    past, ahead = parted(data, 50)
    forecaster = fitted(past)
    with pytest.warns(
        UserWarning, match=r"'promo' is new to 4 series in \d+ rows, the first at 2026"
    ) as caught:
        found = forecaster.predict_at(ahead.index, X=ahead[["promo"]]).y
    assert len(caught) == 1
    seen = ahead.index.get_level_values(0) >= "s04"
    assert (found - ahead.y)[seen].abs().mean() < 1.3


@pytest.mark.slow
def test_a_kind_that_a_series_has_not_had_acts_as_on_others() -> None:
    rng = np.random.default_rng(1)
    kind = rng.choice(["flyer", "half price", "none"], (12, 60), p=[0.15, 0.15, 0.7])
    early = kind[:4, :50]
    early[early == "half price"] = "none"
    y = 30 + 4 * rng.normal(size=(12, 1)) + rng.normal(size=(12, 60))
    y += np.select([kind == "flyer", kind == "half price"], [3.0, 12.0], 0.0)
    data = table([f"s{k:02d}" for k in range(12)], DAYS, y=y, kind=kind)
    past, ahead = parted(data, 50)
    found = fitted(past).predict_at(ahead.index, X=ahead[["kind"]]).y
    new = (ahead.kind == "half price") & (ahead.index.get_level_values(0) < "s04")
    assert new.sum() > 3
    assert (found - ahead.y)[new].abs().mean() < 1.5


@pytest.mark.slow
def test_prices_act_by_how_many_times_as_high_they_are() -> None:
    rng = np.random.default_rng(0)
    moves = np.exp(0.01 * rng.normal(size=(12, 60)))
    moves[:, 50:] *= 0.8  # a cut that no series has had
    y = np.exp(rng.normal(3, 0.4, (12, 1)) + 0.05 * rng.normal(size=(12, 60)))
    price = moves * np.exp(rng.normal(0, 0.5, (12, 1)))
    y *= moves**-1.8
    data = table([f"s{k:02d}" for k in range(12)], DAYS, y=y, price=price)
    past, ahead = parted(data, 50)
    forecaster = fitted(past)
    parts = parts_of(forecaster)
    assert "price (logarithm)" in parts
    found = forecaster.predict_at(ahead.index, X=ahead[["price"]]).y
    # without the effect the error were 1.8 * log(1 / 0.8), a third
    assert np.abs(np.log(found / ahead.y)).mean() < 0.09


# Series without y


@pytest.mark.parametrize("how", mostly_slow(["absolute", "relative", "rows"], "rows"))
def test_a_series_without_a_row_is_forecast_from_X_and_the_panel(how: str) -> None:
    data = shops(n_shops=30)
    names = data.index.get_level_values(0)
    past, ahead = parted(data, 50)
    forecaster = fitted(past[past.index.get_level_values(0) < "s20"])
    X = ahead[["promo"]]
    if how == "rows":
        found = forecaster.predict_at(ahead.index, X=X).y
        paths = forecaster.sample(ahead.index, n_samples=200, X=X).y
        spread = paths.groupby(level=[1, 2]).std()
        assert 2.0 < spread.loc["s25"].mean() < 5.0
    else:
        fh = range(1, 11) if how == "relative" else DAYS[50:]
        found = forecaster.predict(fh=fh, X=X).y
        every = forecaster.predict_interval(fh=fh, X=X)
        low, high = every.loc["s25"].to_numpy().T
        # as wide as shops differ, by three, and days, by one
        assert 8.0 < (high - low).mean() < 15.0
    assert found.index.sort_values().equals(ahead.index)
    new = found[found.index.get_level_values(0) >= "s20"]
    on = ahead.promo.reindex(new.index) > 0
    assert new[on].mean() - new[~on].mean() == pytest.approx(8.0, abs=0.5)
    assert new[~on].mean() == pytest.approx(20.0, abs=2.0)
    assert names.nunique() == 30


def test_a_series_whose_y_is_all_missing_waits_for_the_first_value() -> None:
    data = shops()
    data.loc["s11", "y"] = np.nan
    past, ahead = parted(data, 50)
    forecaster = fitted(past)
    X = ahead[["promo"]]
    first = forecaster.predict(fh=range(1, 11), X=X).y
    assert first.loc["s11"].notna().all()
    assert first.loc["s11"].index.equals(DAYS[50:])
    seen = ahead.loc[["s11"]].iloc[:2]
    forecaster.update(seen[["y"]].fillna(32.0), X=seen[["promo"]], update_params=False)
    after = forecaster.predict(fh=DAYS[52:], X=X).y.loc["s11"]
    # two values of 32, of a usual one of twenty
    assert after.min() > 28.0


@pytest.mark.slow
def test_an_unseen_series_of_very_different_ones_is_as_uncertain() -> None:
    rng = np.random.default_rng(2)
    levels = rng.normal(4.0, 1.0, (30, 1))
    y = np.exp(levels + 0.1 * rng.normal(size=(30, 60)))
    data = table([f"s{k:02d}" for k in range(30)], DAYS, y=y)
    past, _ = parted(data, 50)
    forecaster = StructuralForecaster(random_state=0).fit(past)
    rows = pd.MultiIndex.from_product([["new"], DAYS[50:]], names=["shop", "day"])
    point = forecaster.predict_at(rows).y
    assert np.log(point).mean() == pytest.approx(levels.mean(), abs=0.5)
    paths = forecaster.sample(rows, n_samples=200).y
    assert np.log(paths.groupby(level=[1, 2]).std() / point).between(-1, 2).all()


def test_unseen_series_are_refused_where_nothing_tells_of_them() -> None:
    data = shops()[["y"]]
    data.loc["s11", "y"] = np.nan
    network = LatentODERNNForecaster(model="paper", max_epochs=1)
    with pytest.raises(ValueError, match=r"at least one observed value in every"):
        network.fit(data)
    keys = pd.MultiIndex.from_product([[1], DAYS], names=["shop", "day"])
    numbers = shops().rename(index={"s00": "1"}, level=0)[["y"]]
    with pytest.raises(ValueError, match="must not have the key of a known one"):
        StructuralForecaster().fit(numbers).predict_at(keys)


@pytest.mark.parametrize(
    ("key", "is_told"), [("S00 ", True), ("s0", False), ("s00", False)]
)
def test_a_key_in_other_capitals_is_told(key: str, is_told: bool) -> None:
    keys = pd.MultiIndex.from_product([[key], DAYS[50:52]], names=["shop", "day"])
    later = pd.DataFrame({"y": 5.0}, keys)
    forecaster = StructuralForecaster(seasons=None).fit(parted(shops()[["y"]], 50)[0])
    told = r"in capitals or spaces .* got \('S00 ',\), which is new, known is \('s00',"
    for ask in (lambda: forecaster.predict_at(keys), lambda: forecaster.update(later)):
        with pytest.warns(UserWarning, match=told) if is_told else nullcontext():
            ask()


# Events at times of their own


def doses(n: int, fade: float, seed: int) -> tuple[pd.Series, pd.DataFrame]:
    """Return readings between doses, and the doses, in hours."""
    rng = np.random.default_rng(seed)
    given, seen = np.sort(rng.uniform(0, 1500, n)), np.sort(rng.uniform(0, 1500, 220))
    amount = rng.choice([1.0, 2.0, 3.0], n)
    since = seen[:, None] - given
    left = amount * np.exp(-np.maximum(since, 0) / fade)
    values = (left * (since >= 0)).sum(1) + 0.1 * rng.normal(size=len(seen))
    stamps = [
        pd.Timestamp("2024-01-01") + pd.to_timedelta(h, "h") for h in (seen, given)
    ]
    times = [each.round("s") for each in stamps]
    X = pd.concat([pd.Series(0.0, times[0]), pd.Series(amount, times[1])]).sort_index()
    return pd.Series(values, times[0]).reindex(X.index), X.to_frame("dose")


@pytest.mark.parametrize("sign", [1.0, slow(-1.0)])
def test_doses_between_readings_add_up_and_fade(sign: float) -> None:
    y, X = doses(160, fade=30.0, seed=0)
    y, X, n = sign * y, sign * X, 300
    forecaster = StructuralForecaster(random_state=0).fit(y[:n], X=X[:n])
    is_dose = parts_of(forecaster).str.startswith("dose (line, fading)")
    memory = forecaster.components_["memory"][is_dose].str.replace(" d", " D")
    assert len(memory) == 1
    assert pd.Timedelta(memory.iloc[0]) / pd.Timedelta("1h") == pytest.approx(
        30, rel=0.1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = forecaster.predict(fh=X.index[n:], X=X[n:])
    assert (found - y[n:]).abs().mean() < 0.16
    # X may have stamps that are not asked
    asked = y[n:].dropna().index[::2]
    assert np.allclose(forecaster.predict(fh=asked, X=X[n:]), found[asked], atol=1e-6)


def test_parts_add_up_where_a_dose_is_absorbed_before_it_acts() -> None:
    rng = np.random.default_rng(0)
    given, seen = np.sort(rng.uniform(0, 1500, 160)), np.sort(rng.uniform(0, 1500, 400))
    since = np.maximum(seen[:, None] - given, 0.0)
    values = (5 * (np.exp(-since / 40) - np.exp(-since / 8))).sum(1)
    values += 0.05 * rng.normal(size=400)
    times = [
        (pd.Timestamp("2024-01-01") + pd.to_timedelta(h, "h")).round("s")
        for h in (seen, given)
    ]
    X = pd.concat([pd.Series(0.0, times[0]), pd.Series(1.0, times[1])]).sort_index()
    y = pd.Series(values, times[0]).reindex(X.index)
    forecaster = StructuralForecaster(random_state=0).fit(y, X=X.to_frame("dose"))
    assert (parts_of(forecaster) == "dose (line, fading)").sum() == 2
    parts = forecaster._parts(times[0][-50:], None).droplevel(0, axis=1)
    total = parts.drop(columns="signal").sum(axis=1)
    np.testing.assert_allclose(total, parts["signal"])


def test_a_column_that_is_never_zero_is_no_impulse() -> None:
    y, X = doses(160, fade=30.0, seed=0)
    forecaster = StructuralForecaster(random_state=0).fit(y, X=X + 5.0)
    parts = parts_of(forecaster)
    assert not parts.str.contains("fading").any()


def patients(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return patients who respond more or less, some longer; and which rows are known.

    Of fourteen readings each, with noise in proportion, nine are.
    """
    rng = np.random.default_rng(seed)
    rows, is_known = {}, {}
    for name in (f"p{k:02d}" for k in range(25)):
        size, fade = np.exp(rng.normal(0, [0.3, 0.15])) * [1.0, 30.0]
        given, seen = np.sort(rng.uniform(0, 160, (2, 14)))
        amount = rng.choice([2.0, 4.0], len(given))
        since = seen[:, None] - given
        left = amount * np.exp(-np.maximum(since, 0) / fade) * (since >= 0)
        y = size * left.sum(1) * np.exp(0.05 * rng.normal(size=len(seen)))
        hours = np.concatenate([seen, given])
        both = pd.DataFrame(
            {
                "y": np.append(y, 0 * given + np.nan),
                "dose": np.append(0 * seen, amount),
            },
            pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, "h").round("s"),
        )
        known = pd.Series(hours < seen[9], both.index)
        rows[name], is_known[name] = both.sort_index(), known.sort_index()
    names = ["patient", "time"]
    return pd.concat(rows, names=names), pd.concat(is_known, names=names)


@pytest.mark.slow
def test_patients_who_respond_more_or_less_share_a_memory() -> None:
    errors, shares = [], []
    for seed in range(3):
        data, is_known = patients(seed)
        ahead = data[~is_known].dropna()
        forecaster = fitted(data[is_known])
        memory = forecaster.components_["memory"].xs("dose (line, fading)", level=1)
        hours = pd.to_timedelta(memory.str.replace(" d", " D")) / pd.Timedelta("1h")
        assert np.allclose(hours, 30, rtol=0.25)
        X = data[~is_known][["dose"]]
        found = forecaster.predict_at(ahead.index, X=X).y
        errors.append((found - ahead.y).abs().mean() / ahead.y.mean())
        every = forecaster.predict_interval(fh=X.index, X=X).reindex(ahead.index)
        low, high = every.to_numpy().T
        shares.append(((low < ahead.y) & (ahead.y < high)).mean())
    # were sizes and times known, the noise alone: 0.04
    assert np.mean(errors) < 0.075
    assert 0.82 < np.mean(shares) < 0.97


# Age


@pytest.mark.slow
def test_young_series_follow_the_curve_of_older_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    age = np.arange(40.0)
    curve = (age + 1) / 8 * np.exp(1 - (age + 1) / 8)
    parts, truth = {}, {}
    for k in range(20):
        begin = pd.Timestamp("2020-01-05") + pd.Timedelta(weeks=int(rng.integers(150)))
        stamps = pd.date_range(begin, periods=40, freq="W")
        values = np.exp(rng.normal(4, 0.5)) * curve * np.exp(0.1 * rng.normal(size=40))
        # a third are six weeks old
        parts[f"p{k:02d}"] = pd.Series(values, stamps)[: 6 if k < 7 else 40]
        truth[f"p{k:02d}"] = pd.Series(values, stamps)
    y = pd.concat(parts, names=["product", "week"]).to_frame("y")
    forecaster = StructuralForecaster(random_state=0).fit(y)
    names = parts_of(forecaster)
    assert "age (curve)" in names
    rows = pd.concat(truth, names=["product", "week"])
    ahead = rows[~rows.index.isin(y.index)]
    found = forecaster.predict_at(ahead.index).y
    assert np.abs(np.log(found / ahead)).mean() < 0.2
    # and a product that is not out yet begins at the curve's beginning
    pytest.importorskip("safetensors")
    forecaster.save_weights(tmp_path / "launches.safetensors")
    again = StructuralForecaster.load_weights(tmp_path / "launches.safetensors")
    stamps = pd.date_range("2024-01-07", periods=20, freq="W")
    new = pd.MultiIndex.from_product([["new"], stamps], names=["product", "week"])
    begun = again.predict_at(new).y
    assert begun.equals(forecaster.predict_at(new).y)
    assert 5 <= int(begun.to_numpy().argmax()) <= 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 4])
def test_how_noisy_young_series_are_makes_no_curve_of_age_larger(seed: int) -> None:
    rng, age = np.random.default_rng(seed), np.arange(24.0)
    curve = 60 * (age + 1) / 6 * np.exp(1 - (age + 1) / 6)
    spread = np.where(age < 5, 8.0, 1.0)
    parts = {}
    for k in range(12):
        values = curve + spread * rng.normal(size=24)
        begin = pd.Timestamp("2024-01-01") + pd.Timedelta(days=int(rng.integers(300)))
        parts[f"p{k:02}"] = pd.Series(values, pd.date_range(begin, periods=24))
    rows = pd.concat(parts, names=["product", "day"])
    # of four the first five days are known, which are the noisy ones
    young = {key: y[:5] if key < "p04" else y for key, y in parts.items()}
    seen = pd.concat(young, names=["product", "day"]).to_frame("y")
    ahead = rows[~rows.index.isin(seen.index)]
    found = StructuralForecaster().fit(seen).predict_at(ahead.index).y
    assert np.abs(found.to_numpy().reshape(4, 19) - curve[5:]).mean() < 2


def launches(most_late: int, n: int = 20) -> pd.DataFrame:
    """Return products of one curve, a third of them young, with all rows to come.

    Others were first seen at different ages.
    """
    rng = np.random.default_rng(0)
    age = np.arange(40.0)
    curve = (age + 1) / 8 * np.exp(1 - (age + 1) / 8)
    parts = {}
    for k in range(n):
        begin = pd.Timestamp("2020-01-05") + pd.Timedelta(weeks=int(rng.integers(150)))
        stamps = pd.date_range(begin, periods=40, freq="W")
        noise = np.exp(rng.normal(4, 0.5) + 0.1 * rng.normal(size=40))
        late = rng.integers(most_late + 1)
        is_past = age < 6 if k < n // 3 + 1 else age >= late
        columns = {"y": noise * curve, "age": age, "is_past": is_past}
        parts[f"p{k:02d}"] = pd.DataFrame(columns, stamps)
    return pd.concat(parts, names=["product", "week"])


@pytest.mark.slow
def test_a_column_may_say_the_age_of_a_curve_that_series_share() -> None:
    data = launches(most_late=20)
    past = data[data.is_past]
    ahead = data[(data.index.get_level_values(0) < "p07") & ~data.is_past]
    forecaster = fitted(past.drop(columns="is_past"))
    assert "age (curve of age)" in parts_of(forecaster)
    found = forecaster.predict_at(ahead.index, X=ahead[["age"]]).y
    assert np.abs(np.log(found / ahead.y)).mean() < 0.25
    # what is not told goes on
    with pytest.warns(UserWarning, match="X is not known in column 'age'"):
        untold = forecaster.predict_at(ahead.index).y
    assert np.abs(np.log(untold / found)).mean() < 0.05


@pytest.mark.slow
def test_a_new_series_is_as_old_as_a_column_says() -> None:
    data = launches(most_late=0)
    data["luck"] = np.random.default_rng(1).normal(size=len(data))
    past = data[data.is_past].drop(columns="is_past")
    forecaster = fitted(past)
    stamps = pd.date_range("2024-01-07", periods=15, freq="W")
    rows = pd.MultiIndex.from_product([["new"], stamps], names=["product", "week"])
    X = pd.DataFrame({"age": np.arange(12.0, 27.0), "luck": 0.0}, rows)
    found = forecaster.predict_at(rows, X=X).y.to_numpy()
    age = X["age"].to_numpy() + 1
    expected = age / 8 * np.exp(1 - age / 8)
    assert found / found[0] == pytest.approx(expected / expected[0], rel=0.2)


@pytest.mark.slow
def test_a_series_that_was_left_out_begins_at_its_first_row_of_X() -> None:
    data = launches(most_late=0)
    data["luck"] = np.random.default_rng(1).normal(size=len(data))
    past = data[data.is_past].drop(columns=["is_past", "age"])
    out = past.loc[["p10"]]
    forecaster = fitted(past.drop("p10"))
    found = forecaster.predict_at(out.index, X=out[["luck"]]).y
    share = found / out.y
    assert np.log(share).std() < 0.3


def test_a_column_that_falls_says_no_age() -> None:
    past = launches(most_late=20).query("is_past").drop(columns="is_past")
    week = past.loc[["p10"]].index[3]
    past.loc[week, "age"] = 1.0
    parts = parts_of(fitted(past))
    assert not parts.str.contains("of age").any()


@pytest.mark.slow
def test_what_is_missing_before_the_first_value_makes_no_series_older() -> None:
    y = launches(most_late=0, n=10).query("is_past")[["y"]]
    begin = y.index.get_level_values(1).min()
    ends = y.reset_index().groupby("product")["week"].max()
    rows = [
        (name, week)
        for name, end in ends.items()
        for week in pd.date_range(begin, end, freq="W")
    ]
    padded = y.reindex(pd.MultiIndex.from_tuples(rows, names=y.index.names))
    plain = StructuralForecaster(random_state=0).fit(y)
    other = StructuralForecaster(random_state=0).fit(padded)
    assert "age (curve)" in parts_of(plain)
    expected = plain.predict(fh=range(1, 20))
    pd.testing.assert_frame_equal(other.predict(fh=range(1, 20)), expected)
    # and what has no value yet has not begun
    weeks = pd.date_range(begin, ends.max(), freq="W")
    rows = pd.MultiIndex.from_product([["new"], weeks], names=y.index.names)
    both = pd.concat([padded, pd.DataFrame({"y": np.nan}, rows)]).sort_index()
    waiting = StructuralForecaster(random_state=0).fit(both)
    begun = waiting.predict(fh=range(1, 20)).loc["new", "y"]
    assert 5 <= int(begun.to_numpy().argmax()) <= 10


def test_where_all_series_are_as_old_no_curve_of_age_is_sought() -> None:
    rng = np.random.default_rng(0)
    common = 10 * np.sin(np.arange(60) / 9.0)
    y = 50 + common + rng.normal(size=(12, 60))
    data = table([f"s{k:02d}" for k in range(12)], DAYS, y=y)
    parts = StructuralForecaster().fit(data).components_.index.get_level_values("part")
    assert "age (curve)" not in parts


@pytest.mark.slow
@pytest.mark.parametrize("change", ["opened", "closed"])
def test_what_all_series_do_at_one_time_is_no_curve_of_age(change: str) -> None:
    rng = np.random.default_rng(2)
    common = 2 * rng.normal(size=60).cumsum()
    y = 50 + 5 * rng.normal(size=(14, 1)) + common + rng.normal(size=(14, 60))
    y[12:, slice(30) if change == "opened" else slice(20, 60)] = np.nan
    data = table([f"s{k:02d}" for k in range(14)], DAYS, y=y)
    found = {}
    for n in (12, 14):  # of which two opened late, or closed
        shops = data[data.index.get_level_values(0) < f"s{n:02d}"].dropna()
        forecaster = StructuralForecaster().fit(shops)
        assert "age (curve)" not in parts_of(forecaster)
        found[n] = forecaster.predict(fh=[20]).y.iloc[:12].to_numpy()
    assert np.abs(found[14] - found[12]).max() < 3


def grown(n: int = 14) -> pd.DataFrame:
    """Return trees that grow by one curve, at the ages 0 to 9."""
    rng, age = np.random.default_rng(0), np.arange(10)
    curve = 60 * (1 - np.exp(-age / 5))
    y = curve * (1 + 0.03 * rng.normal(size=(n, 1))) + 0.5 * rng.normal(size=(n, 10))
    rows = pd.MultiIndex.from_product([range(n), age], names=["tree", "age"])
    return pd.DataFrame({"y": y.ravel()}, rows)


@pytest.mark.parametrize("n_young", [1, 4])
def test_an_index_of_ages_has_a_curve_for_a_single_young_series(n_young: int) -> None:
    data = grown()
    rows = data.index
    is_ahead = (rows.get_level_values(0) < n_young) & (rows.get_level_values(1) > 3)
    forecaster = StructuralForecaster().fit(data[~is_ahead])
    assert "age (curve)" in parts_of(forecaster)
    found = forecaster.predict_at(data[is_ahead].index)
    assert (found - data[is_ahead]).abs().y.mean() < 2.5


@pytest.mark.parametrize("seed", [1, 4])
def test_series_that_grow_by_one_curve_share_a_scale(seed: int) -> None:
    rng, week = np.random.default_rng(seed), np.arange(12)
    curve = 25 + 5.5 * week + 0.1 * week**2
    slopes = 0.5 * rng.normal(size=(40, 1))
    y = curve + 2.5 * rng.normal(size=(40, 1)) + slopes * week
    y += 0.9 * rng.normal(size=(40, 12)).cumsum(axis=1)
    rows = pd.MultiIndex.from_product([range(40), week], names=["pig", "week"])
    data = pd.DataFrame({"y": y.ravel()}, rows)
    is_ahead = (rows.get_level_values(0) < 16) & (rows.get_level_values(1) > 2)
    forecaster = StructuralForecaster().fit(data[~is_ahead])
    ahead = data.y[is_ahead].to_numpy().reshape(16, 9)
    last = data.y.xs(2, level="week").to_numpy()[:16, None]
    found = forecaster.predict_at(data[is_ahead].index).y.to_numpy().reshape(16, 9)
    moved = last + curve[3:] - curve[2]  # the true curve, from the last value on
    assert np.abs(found - ahead).mean() < 1.02 * np.abs(moved - ahead).mean()


def test_a_family_that_was_pretrained_on_keeps_its_curve_of_age() -> None:
    data = grown()
    tree, age = (data.index.get_level_values(level) for level in (0, 1))
    family = StructuralForecaster().pretrain(data[tree >= 4])
    forecaster = family.fit(data[(tree < 4) & (age < 4)])
    assert "age (curve)" in parts_of(forecaster)
    ahead = data[(tree < 4) & (age >= 4)]
    assert (forecaster.predict_at(ahead.index) - ahead).abs().y.mean() < 2.5


def test_a_curve_of_age_goes_on_past_the_oldest_as_it_was_shown_to() -> None:
    rng = np.random.default_rng(1)
    parts = {}
    for k in range(30):
        # each begins high, and then wanders about one level
        age = np.sort(rng.uniform(0, 60, 30)) + 0.01 * np.arange(30)
        begin = pd.Timestamp("2024-01-01") + pd.Timedelta(days=int(rng.integers(200)))
        wave = 0.5 * np.sin(age / 5 + rng.uniform(0, 6))
        values = np.exp(1 + 1.5 * np.exp(-age / 12) + wave)
        stamps = begin + pd.to_timedelta(age, unit="D")
        parts[k] = pd.Series(values, stamps.round("s"))[: 30 if k > 4 else 8]
    y = pd.concat(parts, names=["series", "time"]).to_frame("y")
    forecaster = StructuralForecaster().fit(y)
    assert "age (curve)" in parts_of(forecaster)
    late = pd.MultiIndex.from_product([[20], [pd.Timestamp("2026-06-01")]])
    assert 1.5 < forecaster.predict_at(late).y.item() < 6


# Attributes


@pytest.mark.parametrize("is_missing", [False, slow(True)])
def test_attributes_of_series_tell_of_their_levels(is_missing: bool) -> None:
    rng = np.random.default_rng(0)
    size, region = rng.normal(size=(30, 1)), rng.choice(["north", "south"], (30, 1))
    y = 30 + 5 * size + 8 * (region == "south") + rng.normal(size=(30, 1))
    y = y + rng.normal(size=(30, 60))
    names = [f"s{k:02d}" for k in range(30)]
    ones = np.ones((30, 60))
    which = np.broadcast_to(region, ones.shape)
    data = table(names, DAYS, y=y, size=size * ones, region=which)
    past, ahead = parted(data, 50)
    past = past[past.index.get_level_values(0) < "s24"].copy()
    if is_missing:
        # of two shops it is not known: their own rows tell where they stand
        past.loc[["s00", "s01"], "size"] = np.nan
        with pytest.warns(UserWarning, match="'size' at 100 of 1200 rows"):
            forecaster = fitted(past)
    else:
        forecaster = fitted(past)
    names_found = parts_of(forecaster)
    assert {"size (line)", "region = south (line)"} <= {*names_found}
    new = ahead[ahead.index.get_level_values(0) >= "s24"]
    X = new[["size", "region"]]
    found = forecaster.predict_at(new.index, X=X).y
    # shops differ by six; given what they are, by one
    assert (found - new.y).abs().mean() < 2.0
    paths = forecaster.sample(new.index, n_samples=200, X=X).y
    assert 1.0 < paths.groupby(level=[1, 2]).std().mean() < 2.2


def test_attributes_that_tell_nothing_are_left_out() -> None:
    data = shops(n_shops=20)
    values = np.random.default_rng(5).normal(size=(20, 1)) * np.ones((20, 60))
    data["luck"] = values.ravel()
    past, _ = parted(data, 50)
    assert not parts_of(fitted(past)).str.startswith("luck").any()


@pytest.mark.slow
def test_levels_that_attributes_tell_need_not_lie_about_the_median() -> None:
    rng = np.random.default_rng(0)
    size = rng.uniform(0, 1, (40, 1)) ** 3 * np.ones((40, 60))
    y = 100 * size + 3 * rng.normal(size=(40, 1)) + rng.normal(size=(40, 60))
    data = table([f"s{k:02d}" for k in range(40)], DAYS, y=y, size=size)
    past, ahead = parted(data, 50)
    forecaster = fitted(past[past.index.get_level_values(0) < "s25"])
    new = ahead[ahead.index.get_level_values(0) >= "s25"]
    found = forecaster.predict_at(new.index, X=new[["size"]]).y
    # shops differ by three from what their size tells
    assert np.abs((found - new.y).mean()) < 2.0
    assert (found - new.y).abs().mean() < 3.5


@pytest.mark.slow
def test_an_attribute_that_is_not_known_leaves_a_new_series_as_uncertain() -> None:
    rng = np.random.default_rng(0)
    size = rng.normal(size=(30, 1)) * np.ones((30, 60))
    y = 30 + 5 * size + rng.normal(size=(30, 60))
    data = table([f"s{k:02d}" for k in range(30)], DAYS, y=y, size=size)
    past, ahead = parted(data, 50)
    forecaster = fitted(past)
    rows = pd.MultiIndex.from_product([["new"], DAYS[50:]], names=["shop", "day"])
    with pytest.warns(UserWarning, match="X is not known in column 'size'"):
        found = forecaster.predict_interval(fh=rows, coverage=0.9)
    # what is 3.3 deviations wide, of 5 and what it is scattered by
    expected = 3.29 * 5 * past["size"].std()
    assert np.diff(found).mean() == pytest.approx(expected, rel=0.25)
    # a shop whose rows are known stands where they say
    ahead.loc["s03", "size"] = np.nan
    with pytest.warns(UserWarning, match="X is not known in column 'size'"):
        known = forecaster.predict_interval(
            fh=ahead.loc[["s03"]].index, X=ahead[["size"]]
        )
    assert np.diff(known).mean() < 5.0


@pytest.mark.slow
@pytest.mark.parametrize("regions", [["north", "south"], ["east", "north", "south"]])
def test_a_category_that_is_not_known_of_a_shop_is_a_part_of_its_level(
    regions: list[str],
) -> None:
    rng = np.random.default_rng(0)
    region = np.repeat(rng.choice(regions, (30, 1)), 60, axis=1)
    y = 30 + 10 * (region == "south") - 10 * (region == "east")
    y = y + rng.normal(size=(30, 1)) + rng.normal(size=(30, 60))
    data = table([f"s{k:02d}" for k in range(30)], DAYS, y=y, region=region)
    data.loc[["s00", "s01", "s02"], "region"] = None
    past, ahead = parted(data, 50)
    with pytest.warns(UserWarning, match="X is not known in column 'region'"):
        forecaster = fitted(past)
    own = ahead.loc[["s00", "s01", "s02"]]
    with pytest.warns(UserWarning, match="X is not known in column 'region'"):
        found = forecaster.predict_interval(fh=own.index, X=own[["region"]])
    # of 90 %, with rows that are scattered by one
    assert np.diff(found).mean() < 4.5
    assert np.abs(found.mean(axis=1) - own.y).mean() < 1.2
