"""A table of people as a model sees it: states, features, who is in, what an action costs."""

import dataclasses
from collections import defaultdict

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.model import Model
from prefermab.programme.columns import (
    as_flags,
    as_labels,
    as_measures,
    as_numbers,
    check_ids,
    column,
    expected_state,
    is_continuous,
    level_feature,
    source_columns,
    state_numbers,
)
from prefermab.programme.planning.places import read_places
from prefermab.programme.tables import first_row, row_in


@dataclasses.dataclass(frozen=True)
class Participants:
    """The people of a table as far as rules need them."""

    ids: pl.Series
    opt_in: np.ndarray

    @property
    def size(self) -> int:
        """How many people there are."""
        return len(self.ids)


@dataclasses.dataclass(frozen=True)
class Roster(Participants):
    """The people of a table as a model sees them, row by row."""

    states: np.ndarray
    features: np.ndarray
    costs: np.ndarray
    unknown: dict[str, int]
    """How often a cell of each column is empty or holds what the model does not know."""
    outside: np.ndarray
    """How many features of each person lie outside of the training's range; at least 1 for those
    whose features are unusual together."""
    unlike: dict[str, int]
    """How many people's cells of each column lie outside."""
    states_read: dict[str, str]
    """The names of states that were given as numbers."""

    @property
    def incomplete(self) -> int:
        """People of whom some feature is unknown, or as good as unknown."""
        return int(np.isnan(self.features).any(axis=1).sum())

    @property
    def n_unlike(self) -> int:
        """People who are unlike those that the model was trained on."""
        return int((self.outside > 0).sum())


def read_roster(model: Model, frame: pl.DataFrame, where: str) -> Roster:
    """Checks every cell that the model needs; the first that is wrong is named."""
    if frame.height == 0:
        raise InputError(f"{where}: there are no rows; expected one for each person.")
    ids = column(frame, "id", where).alias("id")
    check_ids(ids, where)
    present = np.ones(frame.height, bool)
    if "opt_in" in frame.columns:
        present = as_flags(frame["opt_in"], where, unknown=False).to_numpy()
    unknown: dict[str, int] = defaultdict(int)
    features = read_features(model, frame, where, unknown)
    if model.sightings is None:
        states = read_states(model, column(frame, "state", where), ids, present, where)
    else:
        states = read_places(model, model.sightings, frame, ids, present, where)
    costs = read_costs(model, frame, where, unknown)
    judged = model.judge_cautiously(features)
    outside = np.maximum(judged.outside.sum(axis=1), judged.unlike)
    unlike, meant = judged.counts(model.feature_names), {}
    if "state" in frame.columns:
        meant = states_by_number(model, frame["state"])
    return Roster(
        ids, present, states, judged.features, costs, dict(unknown), outside, unlike, meant
    )


def states_by_number(model: Model, given: pl.Series) -> dict[str, str]:
    """What the numbers in a column of states are read as; empty where states are given by name, or
    have no other names."""
    if is_continuous(model):
        return {}
    names = {str(place): name for place, name in enumerate(model.state_names)}
    if set(names) & {name.lower() for name in model.state_names}:
        return {}
    cells = as_labels(given).unique()
    return {number: name for number, name in names.items() if number in cells}


def read_states(
    model: Model, given: pl.Series, ids: pl.Series, present: np.ndarray, where: str
) -> np.ndarray:
    """States as the model numbers them; people who are out need none."""
    missing = given.is_null().to_numpy() & present
    if missing.any():
        row = int(missing.argmax())
        raise InputError(
            f"{where}: {row_in(where, row)} has no state; expected {expected_state(model)}."
        )
    numbers = state_numbers(model, given, ids, where, pl.Series(present)).fill_null(0)
    kind = np.float32 if is_continuous(model) else np.int32
    return np.where(present, numbers.to_numpy(), 0).astype(kind)


def read_features(
    model: Model, frame: pl.DataFrame, where: str, unknown: dict[str, int]
) -> np.ndarray:
    """Features by name, NaN where unknown; a column that is not there is unknown for everyone."""
    wanted = source_columns(model.feature_names)
    if wanted and not any(name in frame.columns for name in wanted):
        raise InputError(
            f"{where}: none of the model's features is among the columns; expected "
            f"{', '.join(wanted)}, found {', '.join(frame.columns)}."
        )
    found = np.full((frame.height, len(model.feature_names)), np.nan, np.float32)
    place = {name: i for i, name in enumerate(model.feature_names)}
    for name, known in wanted.items():
        if name not in frame.columns:
            unknown[name] += frame.height
            continue
        if known is None:
            numbers = as_measures(frame[name], where)
            found[:, place[name]] = numbers.to_numpy()
            unknown[name] += numbers.null_count()
            continue
        text = as_labels(frame[name]).str.to_lowercase()
        strange = ~text.is_in([category.lower() for category in known]).fill_null(False).to_numpy()
        unknown[name] += int(strange.sum())
        for category in known:
            is_it = (text == category.lower()).fill_null(False).to_numpy()
            found[:, place[level_feature(name, category)]] = np.where(strange, np.nan, is_it)
    for name in [name for name, times in unknown.items() if not times]:
        del unknown[name]
    return found


def read_costs(
    model: Model, frame: pl.DataFrame, where: str, unknown: dict[str, int]
) -> np.ndarray:
    """(arm, action): the model's, or from columns `cost_<action>` where costs differ."""
    costs = np.zeros((frame.height, len(model.action_names)))
    if model.costs is not None:
        costs[:] = model.costs
    for place, action in enumerate(model.action_names[1:], start=1):
        name = f"cost_{action}"
        if name in frame.columns:
            given = as_numbers(frame[name], where)
            if model.costs is not None:
                if given.null_count():
                    unknown[name] += given.null_count()
                given = given.fill_null(model.costs[place])
            wrong = given.is_null() | (given < 0)
            if wrong.any():
                row = first_row(wrong)
                raise InputError(
                    f"{where}: the column '{name}' must hold costs of at least 0, but "
                    f"{row_in(where, row)} holds {given[row]}."
                )
            costs[:, place] = given.to_numpy()
        elif model.costs is None:
            raise InputError(
                f"{where}: the column '{name}' is missing: costs differ between the arms of this "
                "model."
            )
    return costs
