# mypyc: compiled
"""ISO 8601 durations: `PT1M`, `P14DT30M`, `PT0.5S`. Years and months have no fixed length, and are refused."""

import re
from typing import Final

from unibus.errors import ConfigInvalid

# At most 15 digits: a float is exact up to there, and a long text cannot cost time.
_NUMBER: Final = r"(\d{1,15}(?:[.,]\d{1,15})?)"
_FORM: Final = re.compile(rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?")
_LENGTHS_S: Final = (604_800, 86_400, 3_600, 60, 1)
_TICKS_PER_S: Final = 10_000_000

FOREVER: Final = "P10675199DT2H48M5.4775807S"
LONGEST_S: Final = 900_000_000_000
"""A longer duration is read as FOREVER, the largest TimeSpan of .NET, which means "never"."""


def duration_s(text: str) -> float:
    """The duration in seconds. ConfigInvalid for any other text."""
    # Also in lower case and with spaces around: the meaning is clear. `P` alone has no part and is refused below.
    found = _FORM.fullmatch(text.strip().upper())
    if found is None or not any([part is not None for part in found.groups()]):
        raise ConfigInvalid(f"{text!r:.40} is not a duration", "use ISO 8601, for instance PT30S, PT5M or P14D")
    parts = [0.0 if part is None else float(part.replace(",", ".")) for part in found.groups()]
    return sum([length * part for length, part in zip(_LENGTHS_S, parts, strict=True)])


def duration_text(seconds: float) -> str:
    """The text as .NET writes it: days and shorter units, with up to seven decimals."""
    # A TimeSpan of .NET counts ticks of 100 ns: it could not hold more decimals.
    ticks = round(seconds * _TICKS_PER_S)
    whole, fraction = divmod(abs(ticks), _TICKS_PER_S)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, units = divmod(rest, 60)
    decimals = f".{fraction:07}".rstrip("0") if fraction else ""
    date = f"{days}D" if days else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if units or decimals or not (date or time):
        time += f"{units}{decimals}S"
    return ("-" if ticks < 0 else "") + "P" + date + (f"T{time}" if time else "")
