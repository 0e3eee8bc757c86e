"""Durations as ISO 8601 writes them: `PT1M`, `P14DT30M`, `PT0.5S`. Years and months have no length, and are refused."""

import re
from typing import Final

from unibus.errors import ConfigInvalid

_NUMBER: Final = r"(\d{1,15}(?:[.,]\d{1,15})?)"
_FORM: Final = re.compile(rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?")
_LENGTHS_S: Final = (604_800, 86_400, 3_600, 60, 1)

LONGEST_S: Final = 900_000_000_000
"""Above this it is .NET's largest TimeSpan, P10675199DT2H48M5.4775807S, and means: never."""


def duration_s(text: str) -> float:
    """In seconds."""
    found = _FORM.fullmatch(text.strip().upper())
    if found is None or not any([part is not None for part in found.groups()]):
        raise ConfigInvalid(f"{text!r:.40} is no duration", "as in ISO 8601, for instance PT30S, PT5M, P14D")
    parts = [0.0 if part is None else float(part.replace(",", ".")) for part in found.groups()]
    return sum([length * part for length, part in zip(_LENGTHS_S, parts, strict=True)])
