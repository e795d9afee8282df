"""What a request may hold: texts that both databases can store, numbers of 64 bits, and little
before somebody is signed in."""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Form, Request

from prefermab.errors import InputError

BODY = "prefermab.body"
"""The name in a request's scope of the `guards.Body` that counts the bytes of its body."""

LONGEST_SHORT_TEXT = 200
"""Characters of a field of a form before sign-in."""

MOST_BYTES_OUTSIDE = 16 << 10
"""Bytes that the body of a request may have if nobody is signed in."""

ShortText = Annotated[str, Form(max_length=LONGEST_SHORT_TEXT)]
"""A field of a form that is read before sign-in."""


class OpenError(InputError):
    """Wrong input of which everybody may read the sentence, also before they sign in."""


def check_address(request: Request) -> None:
    """Raises if the path or the query of a request holds what cannot be stored."""
    check_storable([request.scope["path"], *request.query_params.multi_items()])


async def check_body(request: Request, *, form: bool) -> None:
    """Raises if the form or the JSON of a request cannot be read, or holds what cannot be
    stored."""
    if form:
        fields = await request.form()
        files = [getattr(value, "filename", None) for _, value in fields.multi_items()]
        try:
            check_storable([*fields.multi_items(), *files])
        except OpenError:
            await fields.close()
            raise
    elif "json" in request.headers.get("content-type", "").lower():
        try:
            given = await request.json()
        except (ValueError, RecursionError):
            raise OpenError("the body is not JSON that can be read.") from None
        check_storable([given])


def check_storable(values: Iterable[Any]) -> None:
    """Raises if one of the values, or a value inside them, cannot be stored by both databases.

    >>> from prefermab.service.auth.incoming import check_storable
    >>> check_storable([{"why": ["moved", 2**63]}])
    Traceback (most recent call last):
        ...
    prefermab.service.auth.incoming.OpenError: a number in the request is too large to be stored.
    """
    left = list(values)
    while left:  # not by recursion: JSON may be nested deeply
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            left += value
        elif isinstance(value, str):
            if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
                raise OpenError("a text in the request has a character that cannot be stored.")
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise OpenError("a number in the request is too large to be stored.")
        elif isinstance(value, float) and not abs(value) < float("inf"):
            raise OpenError("a number in the request is not finite.")
