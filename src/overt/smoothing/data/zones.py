"""The time zone of dates that contain their distance from UTC, such as 2024-07-01T12:00+02:00."""

import bisect
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

# SELDOM: least mean time between changes of a clock (summer time has two a year); dates with more changes follow no single clock.
SELDOM = timedelta(days=60)


class RecordedZone(tzinfo):
    """A clock that is set forward and back: a distance from UTC holds until the next change."""

    def __init__(self, starts: Sequence[datetime], offsets: Sequence[timedelta]) -> None:
        self._starts, self._offsets = list(starts), list(offsets)  # ascending starts in UTC of all offsets but the first

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordedZone, (self._starts, self._offsets)

    def __repr__(self) -> str:
        return f"RecordedZone({self._starts}, {self._offsets})"

    def __str__(self) -> str:
        return " and ".join(dict.fromkeys(_name(offset) for offset in self._offsets))

    def fromutc(self, dt: datetime) -> datetime:
        """The local time of a moment in UTC; an hour that the clock shows twice has fold=1 the second time."""
        moment = dt.replace(tzinfo=None)
        index = bisect.bisect_right(self._starts, moment)
        local = moment + self._offsets[index]
        second = index > 0 and local - self._offsets[index - 1] < self._starts[index - 1]
        return local.replace(tzinfo=self, fold=int(second))

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """The distance from UTC of a local time."""
        if dt is None:
            return self._offsets[0]
        local, ends = dt.replace(tzinfo=None, fold=0), [datetime.min, *self._starts, datetime.max]
        spans = zip(self._offsets, ends[:-1], ends[1:], strict=True)
        offsets = [offset for offset, start, end in spans if start <= local - offset < end]
        return offsets[-1 if dt.fold else 0] if offsets else self._offsets[0]

    def dst(self, dt: datetime | None) -> None:
        """Unknown, None."""

    def tzname(self, dt: datetime | None) -> str:
        """The distance from UTC, for example UTC+02:00."""
        return _name(self.utcoffset(dt))


def recorded_zone(dates: Sequence[datetime]) -> tzinfo:
    """The zone of dates with distances from UTC: a clock that is set forward and back, or UTC if no single clock fits.

    >>> summer, winter = (datetime.fromisoformat(f"2024-10-27T02:30+0{hours}:00") for hours in (2, 1))
    >>> zone = recorded_zone([summer, winter])
    >>> str(zone), winter.astimezone(zone).strftime("%H:%M %Z")
    ('UTC+02:00 and UTC+01:00', '02:30 UTC+01:00')
    """
    known = sorted((date.astimezone(UTC).replace(tzinfo=None), date.utcoffset() or timedelta()) for date in dates)
    changes = [index for index in range(1, len(known)) if known[index][1] != known[index - 1][1]]
    if not changes or len(changes) > 2 + (known[-1][0] - known[0][0]) / SELDOM:
        return UTC
    return RecordedZone([known[index][0] for index in changes], [known[index][1] for index in [0, *changes]])


def _name(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / 60)
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
