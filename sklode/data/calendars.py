"""Days that have names, and where in month and year a stamp is, by the wall clock."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.arrays import Array, Frame, Numbers
from sklode.data.ticks import DAY, stamps_of

# what a month does shows in more months than this,
# by rows at most so far apart
_FEWEST_MONTHS = 3
_MOST_GAP = 4 * DAY
# a quarter of a year is seen twice in more weeks than
# this, of rows at most so far apart
_FEWEST_WEEKS, _MOST_GAP_OF_WEEKS = 65, 7 * DAY
_FEWEST_DAYS = 5  # that show closed nights
_DAYS_OF_MONTH = 30.44
WINDOWS = 7, 14, 21
"""Days before and after named ones, in which periods may differ."""
# that are looked up: holidays beyond them are not known
_YEARS_AHEAD = 30

Named: TypeAlias = Frame | dict[Hashable, str]
"""Days and their names, as users tell them."""
Holidays: TypeAlias = str | Iterable[str] | Named
"""A country, several, or named days."""


def has_dates(like: pd.Index) -> bool:
    """Return whether stamps have dates."""
    return isinstance(like, pd.DatetimeIndex | pd.PeriodIndex)


def _wall(ticks: Numbers, like: pd.Index) -> NDArray[np.datetime64]:
    """Return the date and time on the wall, of a period where it begins."""
    stamps = stamps_of(ticks, like)
    if isinstance(stamps, pd.PeriodIndex):
        stamps = stamps.to_timestamp()
    local = stamps.tz_localize(None)
    found: NDArray[np.datetime64] = local.to_numpy("datetime64[ns]")
    return found


def share_of_month(ticks: Numbers, like: pd.Index) -> Array:
    """Return the share of its month that has passed at each stamp."""
    wall = _wall(ticks, like)
    month = wall.astype("datetime64[M]")
    first = month.astype("datetime64[ns]")
    end = (month + 1).astype("datetime64[ns]")
    # lengths of time divide to a float64
    share: Array = (wall - first) / (end - first)
    return share


def week_of_year(ticks: Numbers, like: pd.Index) -> Numbers:
    """Return the week of the year of each stamp, from 1 to 53 (ISO 8601)."""
    monday = _monday(_wall(ticks, like))
    # a week is of the year that its Thursday is in
    thursday = monday + 3
    first = thursday.astype("datetime64[Y]").astype("datetime64[D]")
    week: Numbers = (thursday - first).astype(np.int64) // 7 + 1
    return week


def years_to_last(ticks: Numbers, like: pd.Index) -> Numbers:
    """Return how many years of 52 weeks lie between each stamp and the last one."""
    days = _wall(ticks, like).astype("datetime64[D]").astype(np.int64)
    years: Numbers = (days.max() - days) // (7 * 52)
    return years


def shows_weeks(ticks: Numbers, bounds: Numbers, like: pd.Index) -> bool:
    """Return whether the longest series may show what weeks of the year do."""
    if not has_dates(like):
        return False
    longest = int(np.diff(bounds).argmax())
    wall = _wall(ticks[bounds[longest] : bounds[longest + 1]], like)
    if len(np.unique(_monday(wall))) <= _FEWEST_WEEKS:
        return False
    gaps = np.diff(wall).astype(np.int64)
    return bool(np.median(gaps) <= _MOST_GAP_OF_WEEKS)


def _monday(wall: NDArray[np.datetime64]) -> NDArray[np.datetime64]:
    """Return the Monday at or before each stamp, as a day."""
    days = wall.astype("datetime64[D]")
    # numbers of days count from 1970-01-01, a Thursday
    passed = (days.astype(np.int64) + 3) % 7
    return days - passed.astype("timedelta64[D]")


def closed_hours(ticks: Numbers, like: pd.Index) -> tuple[str, str] | None:
    """Return when days open and close, if no row lies in the night."""
    if not isinstance(like, pd.DatetimeIndex) or len(ticks) < 3:
        return None
    wall = _wall(ticks, like)
    days = wall.astype("datetime64[D]")
    since_midnight = (wall - days).astype(np.int64)
    gap = int(np.median(np.diff(ticks)))
    # a row stands for the gap after it: a day closes at its end
    opens = int(since_midnight.min())
    closes = int(since_midnight.max()) + gap
    n_days = len(np.unique(days))
    # nights show where rows are six hours apart or less,
    # and four of a day are missing
    is_coarse = gap > DAY / 4
    is_open_by_night = closes - opens > DAY - 4 * gap
    are_few = n_days < _FEWEST_DAYS or len(ticks) < 2 * n_days
    if is_coarse or is_open_by_night or are_few:
        return None
    return _time_of_day(opens), _time_of_day(closes)


def _time_of_day(passed: int) -> str:
    """Return hours and minutes of nanoseconds since midnight."""
    return pd.Timestamp(passed).strftime("%H:%M")


def shows_months(ticks: Numbers, bounds: Numbers, like: pd.Index) -> bool:
    """Return whether the longest series may show what a month does."""
    if not has_dates(like):
        return False
    longest = int(np.diff(bounds).argmax())
    own = ticks[bounds[longest] : bounds[longest + 1]]
    wall = _wall(own, like)
    n_months = len(np.unique(wall.astype("datetime64[M]")))
    if n_months <= _FEWEST_MONTHS:
        return False
    gaps = np.diff(wall).astype(np.int64)
    return bool(np.median(gaps) <= _MOST_GAP)


class RowPeriod(NamedTuple):
    """Which days a row stands for: its own, or those of a period."""

    weeks: int = 0
    months: int = 0
    is_end: bool = False  # whether the stamp is a month's last day, not its first

    @classmethod
    def of(cls, days: Numbers, like: pd.Index) -> RowPeriod:
        """Return that of rows on ``days`` since 1970, which may repeat."""
        several = np.unique(days)
        if len(several) < 2:
            return cls()
        gap = float(np.median(np.diff(several)))
        if isinstance(like, pd.PeriodIndex):
            # periods say it themselves, see `spans`
            return cls(weeks=int(gap > 1))
        if gap >= 7 and not ((several - several[0]) % 7).any():
            return cls(weeks=round(gap / 7))
        dates = several.astype("datetime64[D]")
        months = round(gap / _DAYS_OF_MONTH)
        for is_end in (False, True):
            begins = (dates + int(is_end)).astype("datetime64[M]")
            if months and (begins == dates + int(is_end)).all():
                return cls(months=months, is_end=is_end)
        return cls()

    @property
    def is_long(self) -> bool:
        """Whether rows stand for more than a day."""
        return bool(self.weeks or self.months)

    def spans(self, ticks: Numbers, like: pd.Index) -> list[tuple[Numbers, Numbers]]:
        """Return first and last days of rows.

        Weeks may end on their stamps; those that begin there come second.
        """
        stamps = stamps_of(ticks, like)
        if isinstance(stamps, pd.PeriodIndex):
            return [(_days(stamps.start_time), _days(stamps.end_time))]
        day = _wall(ticks, like).astype("datetime64[D]")
        if self.weeks:
            own, more = _days(day), 7 * self.weeks - 1
            return [(own - more, own), (own, own + more)]
        month = day.astype("datetime64[M]") + (1 - self.months if self.is_end else 0)
        return [(_days(month), _days(month + self.months) - 1)]


def _days(stamps: pd.DatetimeIndex | NDArray[np.datetime64]) -> Numbers:
    """Return days since 1970."""
    return np.asarray(stamps, "datetime64[D]").astype(np.int64)


class Calendar(NamedTuple):
    """Named days."""

    days: Numbers  # (day,), days since 1970, increasing
    # (day,), number of its name, from 1 on; names without a day in the past
    # share the last number
    kinds: Numbers
    names: list[str]  # of kinds that were seen in the past
    period: RowPeriod = RowPeriod()  # which days a row stands for
    largest: float = 1.0  # share of named days in a row of the past

    @classmethod
    def of(cls, given: Holidays, ticks: Numbers, like: pd.Index) -> Calendar:
        """Read countries or a table, for rows at ``ticks`` and later."""
        if not has_dates(like):
            raise TypeError(
                "holidays need an index with dates; "
                f"got {type(like).__name__}. "
                "Use a DatetimeIndex or PeriodIndex, "
                "or a column of X that is 1 on holidays."
            )
        days = _wall(ticks, like).astype("datetime64[D]")
        if isinstance(given, pd.Series | pd.DataFrame | dict):
            named = _table(given)
        else:
            named = _looked_up(given, days)
        dates = sorted(named)
        names = [named[date] for date in dates]
        ordinals = _days(np.array(dates, "datetime64[D]"))
        period, largest = RowPeriod.of(_days(days), like), 1.0
        is_seen = np.isin(ordinals, _days(days))
        if period.is_long:
            spans = period.spans(ticks, like)
            counts = [_counts(ordinals, *span) for span in spans]
            largest = max(
                float((n / (last - first + 1)).max())
                for n, (first, last) in zip(counts, spans, strict=True)
            )
            low = min(int(first.min()) for first, _ in spans)
            high = max(int(last.max()) for _, last in spans)
            is_seen = (ordinals >= low) & (ordinals <= high)
        of_past = [names[place] for place in np.flatnonzero(is_seen)]
        # each name once, in the order of their first days
        seen = list(dict.fromkeys(of_past))
        number = {name: k for k, name in enumerate(seen, 1)}
        # of a name that was never seen all others tell
        unseen = len(seen) + 1
        kinds = [number.get(name, unseen) for name in names]
        return cls(
            days=ordinals,
            kinds=np.array(kinds, np.int64),
            names=seen,
            period=period,
            largest=largest or 1.0,  # none is named
        )

    def at(self, ticks: Numbers, like: pd.Index) -> Array:
        """Return kinds of each stamp's day, the next and the one before; 0: none.

        Where rows stand for periods these are the shares of days of each kind, over the
        largest, (row, place, kind): of named days, and of those within `WINDOWS` before
        and after them; of each of `RowPeriod.spans`.
        """
        if self.period.is_long:
            return self._shares(ticks, like)
        day = _days(_wall(ticks, like))
        found = np.zeros((len(day), 3))
        for k, shift in enumerate((0, 1, -1)):
            shifted = day + shift
            # the first named day that is not earlier, if any:
            # after the last one that is compared, and differs
            place = np.searchsorted(self.days, shifted)
            place = np.minimum(place, len(self.days) - 1)
            is_named = self.days[place] == shifted
            found[is_named, k] = self.kinds[place[is_named]]
        return found

    def _shares(self, ticks: Numbers, like: pd.Index) -> Array:
        """Return shares of days that are named, or near named ones."""
        each = [self.days[self.kinds == k + 1] for k in range(len(self.names) + 1)]
        places = [(0, 0)]
        for n in WINDOWS:
            places += [(-n, -1), (1, n)]
        found = [
            _counts(_near(days, *place), first, last) / (last - first + 1)
            for first, last in self.period.spans(ticks, like)
            for place in places
            for days in each
        ]
        shares = np.stack(found, axis=-1) / self.largest
        return shares.reshape(len(ticks), -1, len(each))


def _near(days: Numbers, first: int, last: int) -> Numbers:
    """Return days from ``first`` to ``last`` after some, each once."""
    return np.unique(days[:, None] + np.arange(first, last + 1))


def _counts(days: Numbers, first: Numbers, last: Numbers) -> Numbers:
    """Return how many sorted days lie from first to last ones."""
    return np.searchsorted(days, last, "right") - np.searchsorted(days, first)


def _table(given: Named) -> dict[datetime.date, str]:
    """Return the names of a table's days."""
    pairs: Iterable[tuple[Hashable, object]]
    if isinstance(given, pd.DataFrame):
        if not {"ds", "holiday"} <= {*given.columns}:
            raise ValueError(
                "a table of holidays must have "
                "the columns 'ds' and 'holiday'; "
                f"got {list(given.columns)}. "
                "Rename them, or pass a Series of names "
                "whose index are the dates."
            )
        pairs = zip(given["ds"], given["holiday"], strict=True)
    else:
        pairs = given.items()
    found: dict[datetime.date, str] = {}
    for day, name in pairs:
        if not isinstance(day, datetime.date | np.datetime64) or pd.isna(day):
            raise TypeError(
                "holidays must be at dates; "
                f"got {day!r} for {name!r}. "
                "Convert them by pd.to_datetime."
            )
        found[pd.Timestamp(day).date()] = str(name)
    if not found:
        raise ValueError("a table of holidays must hold a day; got none. Leave it out.")
    return found


def _looked_up(
    given: str | Iterable[str], days: NDArray[np.datetime64]
) -> dict[datetime.date, str]:
    """Return holidays of countries, from the year before the first day on."""
    try:
        import holidays
    except ImportError as error:
        raise ImportError(
            "holidays of a country need the package holidays, "
            "which is not installed. Run pip install holidays, "
            "or pass a table of names and dates."
        ) from error
    codes = [given] if isinstance(given, str) else given
    # numpy counts years from 1970
    years = days.astype("datetime64[Y]").astype(int) + 1970
    wanted = range(years.min() - 1, years.max() + _YEARS_AHEAD)
    countries = holidays.list_supported_countries()
    markets = holidays.list_supported_financial()
    known = [*countries, *markets]
    found: dict[datetime.date, str] = {}
    for code in codes:
        country, _, part = str(code).partition("-")
        if country not in known:
            near = difflib.get_close_matches(country.upper(), known, n=3, cutoff=0.5)
            remedy = f" Did you mean one of {near}?" if near else ""
            raise ValueError(
                "holidays must be codes of countries that the "
                "package holidays knows, such as 'DE' or 'US-CA', "
                "or a table of names and dates; "
                f"got {code!r}.{remedy}"
            )
        is_market = country in markets
        of = holidays.financial_holidays if is_market else holidays.country_holidays
        try:
            own = of(country, subdiv=part or None, years=wanted)
        except NotImplementedError as error:
            raise ValueError(
                "the package holidays must know parts of countries; "
                f"got {code!r}. "
                f"It has {countries.get(country)}."
            ) from error
        # a day of several keeps the first country's name
        found = {**own, **found}
    return found
