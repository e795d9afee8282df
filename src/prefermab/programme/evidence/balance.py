"""Units and strata of a randomised trial, and balance between its arms: by strata, by pairs of
clusters, or by rerandomisation of people.

Rerandomisation (Morgan, Rubin 2012): people are assigned many times, and one assignment is taken at
random among those with the smallest Mahalanobis distance between the arms' means of the balanced
columns. Everybody keeps the probability of one half for each arm. The analysis adjusts for the
columns by regression (`effects`).
"""

from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.evidence.designs import BY_CLUSTER, Design, draw_layout
from prefermab.programme.tables.columns import as_numbers, named_column

MODEL, CONTROL = "model", "control"
"""The names of the arms."""

ASSIGNMENTS_DRAWN, ASSIGNMENTS_KEPT = 1000, 50
"""Number of assignments that are drawn, and of those with the smallest distance, one of which is
taken at random."""


def find_units(
    table: pl.DataFrame, design: Design, balance: list[str], cluster: str | None, where: str
) -> dict[str, Any]:
    """The unit of each person and the stratum of each unit, as lists of numbers, and the `names` of
    clusters. With rerandomisation of people also their balanced `columns`."""
    if balance and design.name in ("switchback", "stepped wedge"):
        raise InputError(
            f"a {design.name} compares people with themselves, so that no columns can be balanced: "
            "leave out balance."
        )
    if design.name in BY_CLUSTER:
        if cluster is None:
            raise InputError(f"a {design.name} design needs the column of the clusters (cluster).")
        names = named_column(table, cluster, where).cast(pl.String).fill_null("")
        known = sorted(names.unique().to_list())
        if len(known) < 4:
            raise InputError(f"{where}: a trial needs 4 clusters or more, not {len(known)}.")
        unit = [known.index(name) for name in names.to_list()]
        stratum = [0] * len(known)
        if balance:
            stratum = _pairs(_cluster_means(covariates(table, balance, where), np.array(unit)))
        return {"unit": unit, "stratum": stratum, "names": known}
    found = {
        "unit": list(range(table.height)), "stratum": [0] * table.height, "names": []
    }  # fmt: skip
    if design.name == "stratified":
        if not balance:
            raise InputError("a stratified design needs the columns of the strata (balance).")
        labels = pl.DataFrame([_levels(named_column(table, name, where)) for name in balance])
        keys = labels.select(pl.concat_str(pl.all(), separator="|")).to_series()
        found["stratum"] = (keys.rank("dense") - 1).cast(pl.Int64).to_list()
    elif balance:
        columns = covariates(table, balance, where)
        if columns.shape[1] > table.height // 8:
            raise InputError(
                f"{where}: {', '.join(balance)} give {columns.shape[1]} numeric columns, too many "
                f"to balance {table.height} people: expected at most one for every 8 people."
            )
        found["columns"] = columns.tolist()
    return found


def balanced_draw(design: Design, units: dict[str, Any], seed: int) -> int:
    """The position, among the assignments drawn from this seed, of the one that is used: a random
    one of the best balanced; 0 where nothing is balanced.

    >>> from prefermab.programme.evidence.balance import balanced_draw
    >>> from prefermab.programme.evidence.designs import Design
    >>> balanced_draw(Design("individual", 3), {}, seed=0)
    0
    """
    columns = np.array(units.get("columns", ()))
    if not columns.size:
        return 0
    rng = np.random.Generator(np.random.PCG64(seed))
    unit, stratum = np.array(units["unit"]), np.array(units["stratum"])
    once = Design(design.name, 1)
    drawn = [draw_layout(once, unit, stratum, rng).schedule[:, 0] for _ in range(ASSIGNMENTS_DRAWN)]
    model = np.array(drawn, float)
    own, other = model.sum(axis=1, keepdims=True), (1 - model).sum(axis=1, keepdims=True)
    apart = model @ columns / own - (1 - model) @ columns / other
    inverse = np.linalg.pinv(np.atleast_2d(np.cov(columns.T)))
    # Rounded, because equally good draws differ in the last digits from one processor to another.
    distance = np.einsum("da,ab,db->d", apart, inverse, apart).round(9)
    return int(rng.choice(np.argsort(distance, kind="stable")[:ASSIGNMENTS_KEPT]))


def covariates(table: pl.DataFrame, names: list[str], where: str) -> np.ndarray:
    """(person, column): numeric columns with mean 0 and standard deviation 1. A text column gives
    an indicator for each value but the first. Unknown values are replaced by the mean."""
    found = []
    for name in names:
        values = named_column(table, name, where)
        if values.dtype.is_numeric() or values.dtype == pl.Boolean:
            found.append(as_numbers(values.cast(pl.Float64).alias(name), where))
            continue
        text = values.cast(pl.String)
        levels = sorted(text.drop_nulls().unique().to_list())[1:]
        found += [(text == level).cast(pl.Float64) for level in levels]
    filled = [values.fill_null(strategy="mean").fill_null(0).to_numpy() for values in found]
    rows = _standardised(np.array(filled).T.reshape(table.height, -1))
    if not rows.shape[1]:
        raise InputError(f"{where}: {', '.join(names)} must vary between people (balance).")
    return rows


def _standardised(rows: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and standard deviation 1; constant columns are left out."""
    rows = rows[:, rows.std(axis=0) > 1e-12]
    return np.round((rows - rows.mean(axis=0)) / rows.std(axis=0), 9)


def _cluster_means(rows: np.ndarray, unit: np.ndarray) -> np.ndarray:
    sizes = np.bincount(unit)
    return _standardised(np.stack([np.bincount(unit, x) / sizes for x in rows.T], axis=1))


def _pairs(means: np.ndarray) -> list[int]:
    """(cluster,): the number of its pair. The cluster farthest from the mean is paired with its
    nearest neighbour, and so on; with an odd number, the last three form one stratum."""
    left, pair, stratum = list(range(len(means))), 0, [0] * len(means)
    while left:
        first = max(left, key=lambda one: float((means[one] ** 2).sum()))
        near = sorted(left, key=lambda one: float(((means[one] - means[first]) ** 2).sum()))
        together = near if len(left) <= 3 else [first, next(x for x in near if x != first)]
        for one in together:
            stratum[one] = pair
            left.remove(one)
        pair += 1
    return stratum


def _levels(values: pl.Series) -> pl.Series:
    """A column as labels; a number with more than 5 values is cut into thirds."""
    if values.dtype.is_numeric() and values.n_unique() > 5:
        place = values.rank("ordinal").fill_null(0)
        return ((place - 1) * 3 // len(values)).cast(pl.String).fill_null("").alias(values.name)
    return values.cast(pl.String).fill_null("").alias(values.name)


def balance_rows(
    table: pl.DataFrame, assignment: pl.DataFrame, columns: list[str]
) -> list[list[str]]:
    """Rows of the balance table as text: the column, its mean in each arm, and the standardised
    mean difference."""
    if "arm" not in assignment.columns or "id" not in assignment.columns:
        return []
    model = (assignment["arm"] == MODEL).to_numpy()
    rows = [["people", f"{model.sum():,}", f"{(~model).sum():,}", ""]]
    for name in columns:
        values = table[name]
        parts = {name: values.cast(pl.Float64)} if values.dtype.is_numeric() else {
            f"{name} {level}": (values.cast(pl.String) == level).cast(pl.Float64)
            for level in sorted(values.cast(pl.String).drop_nulls().unique().to_list())[:12]
        }  # fmt: skip
        for what, numbers in parts.items():
            known = numbers.is_not_null().to_numpy()
            cells = numbers.fill_null(0).to_numpy()
            own, other = cells[model & known], cells[~model & known]
            if not (len(own) and len(other)):
                continue
            spread = np.sqrt((own.var() + other.var()) / 2)
            apart = (own.mean() - other.mean()) / spread if spread > 0 else 0.0
            rows.append([what, f"{own.mean():.3f}", f"{other.mean():.3f}", f"{apart:+.2f}"])
    return rows
