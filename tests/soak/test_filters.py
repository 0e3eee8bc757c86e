"""A hundred thousand texts that are almost filters: each is read or refused, and nothing else happens."""

from collections.abc import Callable

from tests.property.test_filters import check_random_texts


def test_random_texts(seed: str, report: Callable[[str], None]) -> None:
    report(f"filters: 100,000 texts, SEED={seed}")
    check_random_texts(int(seed, 16), 100_000)
