"""Domains: one file for each problem family, with its dynamics only.

>>> import prefermab as pm
>>> pm.domains.get("sis", population=50).name
'sis'
"""

import dataclasses
from typing import Any

from prefermab.arms.features import FeatureMap
from prefermab.domains.armman import Armman
from prefermab.domains.base import ContinuousDomain, Domain, FiniteDomain
from prefermab.domains.loading import class_in_file, in_a_file, spelling
from prefermab.domains.sis import SIS, ContinuousSIS
from prefermab.domains.synthetic import ContinuousSynthetic, Synthetic
from prefermab.domains.tabular import Tabular
from prefermab.domains.unseen import Unseen
from prefermab.domains.validate import check
from prefermab.errors import InputError, unknown

BY_NAME: dict[str, type[Domain]] = {
    domain.name: domain for domain in (Synthetic, Armman, SIS, ContinuousSynthetic, ContinuousSIS)
}

UNSEEN_SUFFIX = "-unseen"
"""The ending of the name of an `Unseen` domain."""


def get(name: str, **settings: Any) -> Domain:
    """A domain by the name that the command line uses.

    For names that a user typed only: a name that was read from anywhere goes to `built_in`.

    Args:
        name: A shipped domain such as "armman", or a class in a file of your own such as
            "presses.py:Presses"; without a class, the only one in the file. The file is executed:
            name only files that you trust. "armman-unseen" is `Unseen` of "armman".
        settings: Settings of the domain, such as `population`; of `Unseen` as well.

    Returns:
        The domain.

    >>> import prefermab as pm
    >>> pm.domains.get("armman", mix=(0.4, 0.4, 0.2)).mix
    (0.4, 0.4, 0.2)
    """
    if in_a_file(str(name)):
        return _make(class_in_file(str(name)), name, settings)
    return built_in(name, **settings)


def built_in(name: str, **settings: Any) -> Domain:
    """A domain of the package by its name, which may come from a file or a request: nothing is
    imported or executed.

    Args:
        name: A shipped domain such as "armman" or "armman-unseen".
        settings: Settings of the domain, such as `population`; of `Unseen` as well.

    Returns:
        The domain.

    >>> import prefermab as pm
    >>> pm.domains.built_in("presses.py:Presses")
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: unknown domain 'presses.py:Presses': expected one of armman, \
continuous-sis, continuous-synthetic, sis, synthetic.
    """
    if name in BY_NAME:
        return _make(BY_NAME[name], name, settings)
    inner = str(name).removesuffix(UNSEEN_SUFFIX)
    if inner not in BY_NAME:
        raise unknown("domain", str(name), BY_NAME)
    seeing = {key: settings.pop(key) for key in Unseen.own_settings if key in settings}
    return Unseen(built_in(inner, **settings), **seeing)


def _make(kind: type[Domain], name: str, settings: dict[str, Any]) -> Domain:
    taken = [field.name for field in dataclasses.fields(kind) if field.init]
    for setting in settings:
        if setting not in taken:
            raise unknown("setting", setting, taken, of=f" of the domain '{name}'")
    try:
        return kind(**settings)
    except TypeError as error:
        made = f" of {settings}" if settings else ""
        raise InputError(f"the domain '{name}' cannot be made{made}: {error}.") from None


def settings_of(domain: Domain | None) -> dict[str, Any] | None:
    """The settings that rebuild a domain by `built_in`.

    Args:
        domain: A domain.

    Returns:
        The settings by name; None if `built_in` cannot rebuild the domain: one of the user's own,
        or one that was made from arrays or a log.

    >>> import prefermab as pm
    >>> pm.domains.settings_of(pm.domains.Synthetic(shift=0.1))["shift"]
    0.1
    """
    if isinstance(domain, Unseen):
        inner = settings_of(domain.domain)
        return inner and {**inner, **{name: getattr(domain, name) for name in domain.own_settings}}
    if domain is None or BY_NAME.get(domain.name) is not type(domain):
        return None
    return {**_stored_settings(domain), "feature_map": _stored_settings(domain.feature_map)}


def _stored_settings(what: Domain | FeatureMap) -> dict[str, Any]:
    """Fields by name as a model file stores them; those in `later` only where they differ from
    their default."""
    known = {f.name: (f, getattr(what, f.name)) for f in dataclasses.fields(what) if f.init}
    return {
        name: value
        for name, (field, value) in known.items()
        if name not in what.later or value != field.default
    }


__all__ = [
    "BY_NAME",
    "SIS",
    "Armman",
    "ContinuousDomain",
    "ContinuousSIS",
    "ContinuousSynthetic",
    "Domain",
    "FiniteDomain",
    "Synthetic",
    "Tabular",
    "Unseen",
    "built_in",
    "check",
    "get",
    "in_a_file",
    "settings_of",
    "spelling",
]
