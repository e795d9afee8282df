"""Numbers as people write them."""


def plain(number: float | None) -> str:
    """A number without more digits than it needs.

    >>> from prefermab.programme.wording import plain
    >>> plain(1e6), plain(12.5), plain(0.12345)
    ('1,000,000', '12.5', '0.1235')
    """
    if number is None:
        return "?"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def people(number: int) -> str:
    """So many people.

    >>> from prefermab.programme.wording import people
    >>> people(1), people(1200)
    ('1 person', '1,200 people')
    """
    return "1 person" if number == 1 else f"{number:,} people"
