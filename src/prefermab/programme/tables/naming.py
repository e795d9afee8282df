"""How columns are found by their names, in every table.

Case, accents, blanks, hyphens, dots and underscores do not matter: `OPT_IN`, `opt-in` and `Opt In`
are the column `opt_in`. Two columns that both are `opt_in` are refused, even if one is spelled
exactly so. If a column is missing that a reader knows, and another one is nearly called so
(`opt_inn`, `call_cost`), the table is refused: who passes over such a column may call somebody who
opted out.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from prefermab.errors import InputError, brief

NOT_READ = re.compile("[\u0300-\u036f\u200b-\u200f\u2060\ufeff]")
"""Accents, which NFKD writes as characters of their own, and characters without width."""

BETWEEN_WORDS = r"[\s_.\-\u2010-\u2015\u2212]+"
BETWEEN_DIGITS = re.compile(rf"(?<=\d){BETWEEN_WORDS}(?=\d)")
"""Kept as _, since dose_1_5 is not dose_15."""

CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")

OPT_IN = "opt_in"
SINCE_SEEN, ACTION_SEEN, SINCE_ACTION = "rounds_since_seen", "action_seen", "rounds_since_action"
"""Columns of a table that say when a person was seen and acted on; a programme computes them."""

OPT_OUT = re.compile(r"opt(ed|s)? ?out")
ABOUT_OPTING = re.compile(r"\bopt(ed|s|ing)? ?(in|out)\w?\b")
NO_OPTING = ("option", "options", "optic")
"""Ordinary words one letter away from `optin`."""

SHORTEST_WITH_ERROR = 6
"""The fewest letters of a name with one wrong letter: shorter names are too often other words."""

LONGEST_NAME = 200
FILLERS = ("of", "per", "for", "the")


@functools.lru_cache(1 << 16)
def name_key(name: str) -> str:
    """What matters of a column's name: columns with the same key have the same name.

    >>> from prefermab.programme.tables.naming import name_key
    >>> {name_key(one) for one in ("opt_in", "OPT_IN ", "Opt-In", "optin", "Öpt In")}
    {'optin'}
    >>> name_key("feature_1_1"), name_key("feature_11")
    ('feature1_1', 'feature11')
    """
    plain = NOT_READ.sub("", unicodedata.normalize("NFKD", name)).casefold()
    parts = BETWEEN_DIGITS.sub("\0", plain)
    return re.sub(BETWEEN_WORDS, "", parts).replace("\0", "_") or name


def match_names(columns: Iterable[str], known: Iterable[str], where: str) -> dict[str, str]:
    """The columns that are known, as they are spelled in a table.

    Args:
        columns: The names of the table's columns.
        known: The names that a reader looks for. If two of them differ only in what does not
            matter otherwise, they have to be spelled exactly.
        where: The name of the table in messages.

    Returns:
        The name in the table of each known column that it has. Two columns that are the same known
        one raise an error.

    >>> from prefermab.programme.tables.naming import match_names
    >>> match_names(["ID", "Opt-in", "Town"], ["id", "state", "opt_in"], "people.csv")
    {'id': 'ID', 'opt_in': 'Opt-in'}
    """
    by_key: dict[str, list[str]] = {}
    for name in dict.fromkeys(known):
        by_key.setdefault(name_key(name), []).append(name)
    found: dict[str, str] = {}
    for given in dict.fromkeys(columns):
        names = by_key.get(name_key(given), ())
        if len(names) > 1:
            names = [name for name in names if name == given]
        for name in names:
            if name in found:
                raise InputError(
                    f"{where}: the column '{name}' may be '{brief(found[name])}' or "
                    f"'{brief(given)}'; rename or remove one of them."
                )
            found[name] = given
    return found


def find_name(columns: Iterable[str], name: str, where: str = "the table") -> str | None:
    """A known column as it is spelled in a table; None if it is missing.

    >>> from prefermab.programme.tables.naming import find_name
    >>> find_name(["ID", "Worker"], "worker"), find_name(["ID"], "worker")
    ('Worker', None)
    """
    return match_names(columns, [name], where).get(name)


def find_named(columns: Sequence[str], name: str, where: str = "the table") -> str | None:
    """The column that a user named: the one that is spelled exactly so, or else as `find_name`."""
    return name if name in columns else find_name(columns, name, where)


def first_named(columns: Sequence[str], known: Sequence[str]) -> str | None:
    """The first of these columns that a table has, as it is spelled there.

    >>> from prefermab.programme.tables.naming import first_named
    >>> first_named(["id", "Full-Name"], ["name", "full_name"])
    'Full-Name'
    """
    by_key = {name_key(name): name for name in columns}
    return next((by_key[key] for key in map(name_key, known) if key in by_key), None)


def refuse_similar_names(
    columns: Sequence[str], known: Iterable[str], where: str, other: str, used: Iterable[str] = ()
) -> None:
    """Raises an error if a known column is missing, and the name of another one is nearly the same.

    Args:
        columns: The names of the table's columns.
        known: The names that the reader of the table looks for.
        where: The name of the table in messages.
        other: What to do with a column that is something else, for the message.
        used: Columns that are read for other purposes, or may be ignored.

    >>> from prefermab.programme.tables.naming import refuse_similar_names
    >>> refuse_similar_names(["option", "optician"], ["opt_in"], "a.csv", "drop it")
    >>> refuse_similar_names(["opt_inn"], ["opt_in"], "a.csv", "drop it")
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: a.csv: the column 'opt_inn' is not read, but is nearly called
    'opt_in': rename it if it is that column, else drop it.
    """
    known = list(dict.fromkeys(known))
    there = match_names(columns, known, where)
    apart = {name_key(name) for name in (*there, *used)}
    missing = [name for name in known if name not in there]
    like = _similar(missing)
    for given in columns:
        if len(given) > LONGEST_NAME or name_key(given) in apart:
            continue
        near = next((like[form] for form in _forms(given) if form in like), None)
        if OPT_IN in missing and _is_like_opt_in(given):
            near = OPT_IN
        if near is not None:
            raise InputError(
                f"{where}: the column '{given}' is not read, but is nearly called '{near}': rename "
                f"it if it is that column, else {other}."
            )


def is_opt_out(name: str) -> bool:
    """Whether a column is called opt_out in any spelling: the contrary of the column `opt_in`.

    >>> from prefermab.programme.tables.naming import is_opt_out
    >>> [is_opt_out(name) for name in ("optout", "Opted-Out", "OptOut", "opt_out_date")]
    [True, True, True, False]
    """
    return len(name) <= LONGEST_NAME and OPT_OUT.fullmatch(_words(name)) is not None


def _similar(names: Iterable[str]) -> Mapping[str, str]:
    """The names by each of their forms."""
    return {form: name for name in reversed([*names]) for form in _forms(name)}


def _forms(name: str) -> list[str]:
    """Texts of which two names share one if one letter is wrong, missing, added or moved, or if
    they have the same words in another order, in the plural or with a `per` between them.

    Both names must have the same numbers: feature_5 and feature_6 are two features.
    """
    key = name_key(name)
    words = sorted(word.rstrip("s") for word in _words(name).split() if word not in FILLERS)
    forms = [key, key.removesuffix("s"), " ".join(words)]
    if len(key) >= SHORTEST_WITH_ERROR:
        numbers = "".join(sign for sign in key if sign.isdigit())
        shorter = (key[:place] + key[place + 1 :] for place in range(1, len(key)))
        forms += [f"{numbers}:{one}" for one in (key, *shorter)]
    return [form for form in forms if form]


def _is_like_opt_in(name: str) -> bool:
    if ABOUT_OPTING.search(_words(name)):
        return True
    key = name_key(name)
    mine, wanted = (
        {text, *(text[:place] + text[place + 1 :] for place in range(len(text)))}
        for text in (key, name_key(OPT_IN))
    )
    return key not in NO_OPTING and len(key) > 3 and not mine.isdisjoint(wanted)


def _words(name: str) -> str:
    """A name in small letters with blanks between its words."""
    plain = NOT_READ.sub("", unicodedata.normalize("NFKD", CAMEL_CASE.sub(" ", name)))
    return re.sub(BETWEEN_WORDS, " ", plain).casefold().strip()
