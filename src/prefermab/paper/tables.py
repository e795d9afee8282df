"""The paper's tables, read from the files in `published`: the figures and their settings.

The setting of a cell combines the entries of its section, column and row. The row's entries replace
the column's, and the column's replace the section's.
"""

import dataclasses
import math
import tomllib
from functools import cache
from importlib import resources
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from prefermab import domains
from prefermab.arms.features import FeatureMap
from prefermab.arms.opt_in import opted_in_count
from prefermab.domains import Domain
from prefermab.errors import unknown

PUBLISHED_TRIALS = 50
"""Number of trials behind every published mean and standard deviation."""

PAPER_EXCEPTIONS: dict[str, dict[str, Any]] = {"continuous-synthetic": {"price_decay": 0.95}}
"""Hyperparameters for which the paper departs from its own table, by domain."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """The domain and settings on which a policy is trained and tested."""

    domain: str
    n_arms: int
    budget: float
    opt_in: float = 1.0
    train: tuple[tuple[str, Any], ...] = ()
    """Settings of the domain to train on, by name."""
    test: tuple[tuple[str, Any], ...] = ()
    """Settings of the test domain that differ from the training domain."""
    map: str = "linear"
    own_maps: bool = False
    """Whether every training seed has a projection matrix of its own."""
    masked: tuple[int, ...] = ()
    unique_arms: int | None = None
    """Number of different arms to train on; unlimited if None."""
    shaping: str = "none"
    epochs: int | None = None
    freeze: int | None = None
    features: bool = True
    """Whether the topline sees features."""

    def __post_init__(self) -> None:
        # Equal settings must have the same repr, because results are stored under it.
        object.__setattr__(self, "budget", float(self.budget))
        object.__setattr__(self, "opt_in", float(self.opt_in))

    def trained_on(self, seed: int = 0) -> Domain:
        """The training domain of a seed, with all its arms."""
        return self._domain(dict(self.train), seed)

    def tried_on(self, seed: int = 0) -> Domain:
        """The test domain of a seed, with the features that its model sees."""
        return self._domain({**dict(self.train), **dict(self.test)}, seed)

    def _domain(self, options: dict[str, Any], seed: int) -> Domain:
        given = FeatureMap(self.map, seed if self.own_maps else 0, self.masked)
        made = domains.built_in(self.domain, **options, feature_map=given)
        # With arrays instead of numbers, domains that differ only in numbers share compiled code.
        made = jax.tree.map(lambda x: jnp.float32(x) if isinstance(x, float) else x, made)
        as_arrays = ArrayMap(given, len(made.parameter_names))
        return eqx.tree_at(lambda it: it.feature_map, made, as_arrays)

    @property
    def knows(self) -> str:
        """The name of the best policy here that knows the true dynamics."""
        return "whittle" if self.domain in ("synthetic", "armman") else "lagrangian"

    @property
    def epidemic(self) -> bool:
        """Whether the domain is an epidemic, whose trials take long and vary less."""
        return "sis" in self.domain


class ArrayMap(FeatureMap):
    """A feature map whose kind and mask are arrays, so that all maps share compiled code."""

    table: Float[Array, "feat feat"] = eqx.field(kw_only=True)
    squashed: Bool[Array, ""] = eqx.field(kw_only=True)
    hidden: Bool[Array, "feat"] = eqx.field(kw_only=True)

    def __init__(self, given: FeatureMap, size: int):
        self.kind, self.seed, self.masked, self.entries = "linear", 0, (), "normal"
        table = np.eye(size) if given.kind == "identity" else given.matrix(size)
        self.table = jnp.asarray(table, jnp.float32)
        self.squashed = jnp.asarray(given.kind == "sigmoid")
        self.hidden = jnp.asarray(np.isin(np.arange(size), given.masked))

    def __call__(self, parameters: Float[Array, "feat"]) -> Float[Array, "feat"]:
        features = self.table @ parameters
        features = jnp.where(self.squashed, jax.nn.sigmoid(features), features)
        return jnp.where(self.hidden, jnp.nan, features)


@dataclasses.dataclass(frozen=True)
class Figure:
    """A published mean and standard deviation over 50 trials, as printed."""

    mean: float
    sd: float
    inflation: float = 1.0
    """Factor that corrects the printed mean. It was divided by floor(x·N) arms, but round(x·N) arms
    were in."""

    @property
    def corrected(self) -> float:
        """The mean per opted-in arm."""
        return self.mean * self.inflation

    @property
    def stderr(self) -> float:
        """Standard error of the mean, as if the 50 trials were independent."""
        return self.sd * self.inflation / math.sqrt(PUBLISHED_TRIALS)


@dataclasses.dataclass(frozen=True)
class Row:
    """One policy across the columns; None where nothing was published."""

    title: str
    policy: str
    settings: tuple[Setting, ...]
    published: tuple[Figure | None, ...]


@dataclasses.dataclass(frozen=True)
class Section:
    """Rows under one heading."""

    title: str
    rows: tuple[Row, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """One of the paper's tables."""

    name: str
    title: str
    label: str
    note: str
    columns: tuple[str, ...]
    sections: tuple[Section, ...]


@cache
def published_tables() -> dict[str, Table]:
    """All tables of results in the paper's order, then those for Proposition 1: by the arms of an
    instance (`prop1`), and by the number of different arms (`pools`).

    >>> from prefermab.paper.tables import published_tables
    >>> table = published_tables()["table13"]
    >>> table.sections[0].rows[2].published[-1]
    Figure(mean=4.61, sd=0.1, inflation=1.0)
    """
    folder = resources.files("prefermab.paper") / "published"
    names = [*(f"table{i}" for i in range(1, 17) if i != 8), "prop1", "pools"]
    return {n: _table(n, tomllib.loads((folder / f"{n}.toml").read_text())) for n in names}


@cache
def published_hyperparameters() -> dict[str, Any]:
    """The paper's table of hyperparameters, each with the name of our field.

    >>> from prefermab.paper.tables import published_hyperparameters
    >>> len(published_hyperparameters()["settings"])
    11
    """
    folder = resources.files("prefermab.paper") / "published"
    return tomllib.loads((folder / "table8.toml").read_text())


def selected_parts(names: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """The named parts of the report in their order, or all parts."""
    for name in names:
        if name not in known:
            raise unknown("table or figure", name, known)
    return tuple(name for name in known if not names or name in names)


_FIELDS = {field.name for field in dataclasses.fields(Setting)}


def _table(name: str, given: dict[str, Any]) -> Table:
    sections = tuple(
        Section(section["title"], tuple(_row(given, section, row) for row in section["row"]))
        for section in given["section"]
    )
    columns = tuple(column["title"] for column in given["columns"])
    return Table(name, given["title"], given["label"], given.get("note", ""), columns, sections)


def _row(table: dict[str, Any], section: dict[str, Any], row: dict[str, Any]) -> Row:
    settings = tuple(_setting(section, column, row) for column in table["columns"])
    published = tuple(
        Figure(cell[0], cell[1], _inflation(setting) if table.get("inflated") else 1.0)
        if cell
        else None
        for cell, setting in zip(row["published"], settings, strict=True)
    )
    return Row(row["title"], row["policy"], settings, published)


def _setting(*parts: dict[str, Any]) -> Setting:
    merged: dict[str, Any] = {}
    for part in parts:
        for name in _FIELDS & part.keys():
            value = part[name]
            if isinstance(value, dict):
                value = {**dict(merged.get(name, ())), **value}
                value = tuple((key, _hashable(item)) for key, item in value.items())
            merged[name] = _hashable(value)
    return Setting(**merged)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _inflation(setting: Setting) -> float:
    divided_by = math.floor(setting.opt_in * setting.n_arms + 1e-9)
    return divided_by / opted_in_count(setting.opt_in, setting.n_arms)
