"""Days that have names, and which days and months rows lie in, by the wall clock."""

from __future__ import annotations

import datetime
import difflib
import math
import warnings
from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.arrays import Array, Flags, Frame, Numbers
from sklode.data.remedies import date_call, spelt
from sklode.data.ticks import DAY, stamps_of

_FEWEST_MONTHS = 3  # that what a month does shows in are more
_MOST_GAP = 4  # days between rows that show it
# a quarter of a year is seen twice in more weeks than this
_FEWEST_WEEKS = 65
# days: a finer unit would narrow what they are added to
_FIRST_MONDAY = np.datetime64("1970-01-05", "D")
_WEEK = np.timedelta64(7, "D")
_MONTH = np.timedelta64(1, "M")
_WEEKDAYS = "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"
_FEWEST_DAYS = 5  # that show closed nights
_FEWEST_DAYS_OF_COUNTRY, _CHANCE = 180, 4.0
"""Days that show a country's holidays, and deviations beyond which they do."""
_DAYS_OF_MONTH = 30.44  # on average
_MOST_OFF = 3  # days of stamps of months from their first or last day
WINDOWS = 7, 14, 21
"""Days before and after named ones, in which periods may differ."""
WINDOWS_OF_DAYS = 1, 3, 7
"""The same of rows of a day or less, as many."""
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
        # by way of microseconds, for nanoseconds end in the years 1677 and 2262
        starts: Numbers = stamps.asfreq("us", how="start").asi8
        return starts.view("datetime64[us]")
    local = stamps.tz_localize(None)
    found: NDArray[np.datetime64] = local.to_numpy("datetime64[ns]")
    return found


def share_of_month(ticks: Numbers, like: pd.Index) -> Array:
    """Return the share of its month that has passed at each stamp."""
    wall = _wall(ticks, like)
    month = wall.astype("datetime64[M]")
    first, end = month.astype(wall.dtype), (month + _MONTH).astype(wall.dtype)
    # lengths of time divide to a float64
    share: Array = (wall - first) / (end - first)
    return share


def weeks_passed(ticks: Numbers, like: pd.Index) -> Array:
    """Return how many weeks have passed at each stamp, by the wall clock."""
    weeks: Array = (_wall(ticks, like) - _FIRST_MONDAY) / _WEEK
    return weeks


def week_of_year(ticks: Numbers, like: pd.Index) -> Numbers:
    """Return the week of the year of each stamp, from 1 to 53 (ISO 8601)."""
    # a week is of the year that its Thursday is in; the first one is day 7 of 1970
    weeks = (_wall(ticks, like) - _FIRST_MONDAY) // _WEEK
    thursday = (7 * (weeks + 1)).astype("datetime64[D]")
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
    since = _wall(ticks[bounds[longest] : bounds[longest + 1]], like) - _FIRST_MONDAY
    if len(np.unique(since // _WEEK)) <= _FEWEST_WEEKS:
        return False
    return bool(np.median(np.diff(since)) <= _WEEK)


def opening_hours(ticks: Numbers, like: pd.Index) -> str | None:
    """Return code of a ``fh`` or ``freq`` without nights, if no row lies there.

    Of hourly rows that is an offset; others are asked for at the stamps of a week ago.
    """
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
    if gap != DAY // 24:
        week = "pd.DateOffset(days=7)"
        return f"fh=y.index[y.index > y.index[-1] - {week}] + {week}"
    start, end = _time_of_day(opens), _time_of_day(closes)
    weekdays = np.unique(pd.DatetimeIndex(days).dayofweek)
    mask = " ".join(_WEEKDAYS[k] for k in weekdays)
    told = "" if len(weekdays) == 5 and weekdays.max() < 5 else f", weekmask={mask!r}"
    return f"freq=pd.offsets.CustomBusinessHour(start={start!r}, end={end!r}{told})"


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
    return bool(np.median(np.diff(wall)) <= np.timedelta64(_MOST_GAP, "D"))


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
        if isinstance(like, pd.PeriodIndex):
            # periods say it themselves, see `spans`
            one = pd.Period(ordinal=0, freq=like.freq)
            length = (one.end_time - one.start_time) / pd.Timedelta("1D")
            months = round(length / _DAYS_OF_MONTH)
            return cls(weeks=int(length > 1.5 and not months), months=months)
        gaps = np.diff(several)
        gap = float(np.median(gaps))
        # the day of the week may have changed
        if gap >= 7 and (gaps % 7 == 0).mean() > 0.5:
            return cls(weeks=round(gap / 7))
        dates = several.astype("datetime64[D]")
        month = dates.astype("datetime64[M]")
        since_first = _days(dates) - _days(month)
        to_last = _days(month + _MONTH) - 1 - _days(dates)
        months = round(gap / _DAYS_OF_MONTH)
        for is_end, distance in enumerate((since_first, to_last)):
            # the first or last day of work may be a later or earlier one
            if months and distance.max() <= _MOST_OFF:
                return cls(months=months, is_end=bool(is_end))
        return cls()

    @classmethod
    def at(cls, ticks: Numbers, like: pd.Index) -> RowPeriod:
        """Return that of rows at stamps; without dates they stand for none."""
        return cls.of(_days(_wall(ticks, like)), like) if has_dates(like) else cls()

    @property
    def has_weekdays(self) -> bool:
        """Whether rows differ by how many days of the week they have."""
        return 0 < self.months < 12

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
        if not self.is_long:
            return [(_days(day), _days(day))]
        if self.weeks:
            own, more = _days(day), 7 * self.weeks - 1
            return [(own - more, own), (own, own + more)]
        month, length = day.astype("datetime64[M]"), self.months * _MONTH
        if self.is_end:
            month = month + _MONTH - length
        return [(_days(month), _days(month + length) - 1)]

    def weekdays(self, ticks: Numbers, like: pd.Index) -> Array:
        """Return how many Mondays to Sundays rows have, but for the usual number."""
        if not self.has_weekdays:
            return np.zeros((len(ticks), 7))
        first, last = self.spans(ticks, like)[0]
        # 1970 began on a Thursday: days that end weeks are those before it
        ends = np.arange(7) - 3
        number = (last[:, None] - ends) // 7 - (first[:, None] - 1 - ends) // 7
        return number - _DAYS_OF_MONTH * self.months / 7


OWN_DAY = RowPeriod()


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
    period: RowPeriod = OWN_DAY  # which days a row stands for
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
            _warn_if_elsewhere(named, days)
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

    def leaves_weeks_open(self, ticks: Numbers, like: pd.Index) -> bool:
        """Return whether rows are alike if weeks end on their stamps or begin there."""
        spans = self.period.spans(ticks, like)
        counts = [_counts(self.days, *span) for span in spans]
        return len(spans) > 1 and bool((counts[0] == counts[1]).all())

    def at(self, ticks: Numbers, like: pd.Index) -> Array | Flags:
        """Return the shares of each row's days that are of each kind, over the largest.

        (row, place, kind): of named days, and of those in windows before and after
        them, of each of `RowPeriod.spans`. A row of one day has all of it or nothing.
        """
        each = [self.days[self.kinds == k + 1] for k in range(len(self.names) + 1)]
        is_long = self.period.is_long
        places = [(0, 0)]
        for n in WINDOWS if is_long else WINDOWS_OF_DAYS:
            places += [(-n, -1), (1, n)]
        spans = self.period.spans(ticks, like)
        shape = len(ticks), len(spans) * len(places), len(each)
        if not is_long:
            # rows of hours share their days
            several, of_rows = np.unique(spans[0][0], return_inverse=True)
            spans = [(several, several)]
        found = [
            _counts(_near(days, *place), first, last) / (last - first + 1)
            for first, last in spans
            for place in places
            for days in each
        ]
        shares = np.stack(found, axis=-1)
        if not is_long:
            is_near: Flags = (shares > 0)[of_rows].reshape(shape)
            return is_near
        of_largest: Array = shares.reshape(shape) / self.largest
        return of_largest


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
            remedy = "Convert them by pd.to_datetime."
            if isinstance(name, list | tuple | pd.Index):
                remedy = (
                    "Dates are the keys: holidays = {pd.Timestamp(day): name for name, "
                    "days in holidays.items() for day in days}."
                )
            elif date_call(pd.Index([name], dtype=object), "dates") is not None:
                remedy = (
                    "Dates are the index, names the values: "
                    f"holidays = {_turned(given)}."
                )
            raise TypeError(
                f"holidays must be at dates; got {day!r} for {name!r}. {remedy}"
            )
        if not isinstance(name, str):
            raise TypeError(
                f"holidays must have names that are texts; got {name!r} at {day}. Name "
                "those days alone that are some: holidays = pd.Series('closed', "
                "index=dates)."
            )
        found[pd.Timestamp(day).date()] = name
    if not found:
        raise ValueError(
            "a table of holidays must hold a day; got none. Leave it out; for a "
            "country's, pass its code, such as 'DE'."
        )
    if isinstance(given, pd.DataFrame) and "lower_window" in given:
        warnings.warn(
            "a table of holidays has days and names; got lower_window as well, which "
            "is not read. Days before and after a holiday are found: leave it out.",
            UserWarning,
            stacklevel=2,
        )
    return found


def _warn_if_elsewhere(
    named: dict[datetime.date, str], days: NDArray[np.datetime64]
) -> None:
    """Warn of named days of which none lies among rows on ``days``."""
    first, last = days.min().item(), days.max().item()
    if not any(first <= day <= last for day in named):
        warnings.warn(
            f"effects of holidays are learned from those among the rows, {first} to "
            f"{last}; got {min(named)} to {max(named)}, of which none is. Look at the "
            "years.",
            UserWarning,
            stacklevel=2,
        )


def _turned(given: Named) -> str:
    """Return the call that makes the index of dates that are values."""
    if isinstance(given, pd.DataFrame):
        return "holidays.rename(columns={'ds': 'holiday', 'holiday': 'ds'})"
    if isinstance(given, dict):
        return "{date: name for name, date in holidays.items()}"
    return f"pd.Series('closed', index={date_call(given, 'holidays')})"


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
    codes = [given] if isinstance(given, str) else [*given]
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
            # a country by its name, which the package writes as one word
            named = getattr(holidays, country.title().replace(" ", ""), None)
            code_of_it = getattr(named, "country", None)
            near = near if code_of_it is None else [code_of_it]
            meant = _code_meant(codes, str(code), countries)
            remedy = "Days are a table: pd.Series('closed', index=dates)."
            if meant is not None:
                remedy = f"Did you mean {meant!r}?"
            elif near:
                remedy = f"Did you mean one of {near}?"
            raise ValueError(
                "holidays must be codes of countries that the "
                "package holidays knows, such as 'DE' or 'US-CA', "
                "or a table of names and dates; "
                f"got {code!r}. {remedy}"
            )
        is_market = country in markets
        of = holidays.financial_holidays if is_market else holidays.country_holidays
        try:
            own = of(country, subdiv=part or None, years=wanted)
        except NotImplementedError as error:
            meant = _code_meant(codes, str(code), countries)
            remedy = f"It has {countries.get(country)}."
            if meant is not None:
                remedy = f"Did you mean {meant!r}?"
            raise ValueError(
                "the package holidays must know parts of countries; "
                f"got {code!r}. {remedy}"
            ) from error
        # a day of several keeps the first country's name
        found = {**own, **found}
    return found


def _code_meant(
    codes: Iterable[str], code: str, countries: dict[str, list[str]]
) -> str | None:
    """Return a code of words such as 'au vic', or of two codes; None: there is none.

    ``countries`` have the parts that are known.
    """
    known = {spelt(country, " "): country for country in countries}
    for country, parts in countries.items():
        for part in parts:
            known[spelt(f"{country} {part}", " ")] = f"{country}-{part}"
    # a part may be told beside its country
    texts = [spelt(x, " ") for x in (code, *(f"{other} {code}" for other in codes))]
    return next((known[x] for x in texts if x in known), None)


def country_of(ticks: Numbers, values: Array, like: pd.Index) -> str | None:
    """Return the country on whose holidays values of a series differ most; None: none.

    Days differ from the median of the same weekday up to four weeks before and after.
    Ranks of these differences tell, by a Wilcoxon test that so many countries pass by
    chance in one of some hundred series. None too where the package ``holidays`` is not
    installed, or rows are too few.
    """
    try:
        import holidays
    except ImportError:
        return None
    if not has_dates(like) or not len(ticks):
        return None
    day = _wall(ticks, like).astype("datetime64[D]")
    means = pd.Series(values, day).groupby(level=0).mean().dropna()
    if len(means) < _FEWEST_DAYS_OF_COUNTRY:
        return None
    means = means.asfreq("D")
    alike = [means.shift(7 * n) for n in range(-4, 5) if n]
    away = (means - pd.concat(alike, axis=1).median(axis=1)).abs()
    # among four weeks around: differences are larger in some seasons than in others
    around = pd.concat([away.shift(n) for n in range(-14, 15) if n], axis=1)
    below, beside = around.lt(away, axis=0).sum(axis=1), around.notna().sum(axis=1)
    # some countries name every Sunday
    is_told = away.notna() & (beside > 0) & (away.index.dayofweek != 6)
    rank = (below / beside)[is_told]
    best, largest = None, _CHANCE
    for country in holidays.list_supported_countries(include_aliases=False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of years that a country does not tell
            own = holidays.country_holidays(country, years={*rank.index.year})
        found = rank[rank.index.isin(pd.to_datetime([*own]))]
        # the mean of n uniform numbers has the variance 1 / (12 n)
        score = (found.mean() - 0.5) * math.sqrt(12 * len(found))
        if score > largest:
            best, largest = country, score
    return best
