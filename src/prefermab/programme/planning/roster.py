"""Reads a table of people as a model sees it: states, features, who is in, what actions cost.

For models of states that are not always seen, a person's state is a place of `Sightings`: what was
seen of the person last, and how long ago.
"""

import dataclasses
from collections import defaultdict

import numpy as np
import polars as pl

from prefermab.domains.sightings import Sightings
from prefermab.errors import InputError
from prefermab.models.model import Model
from prefermab.programme.tables.columns import (
    as_amounts,
    as_counts,
    as_flags,
    as_labels,
    as_measures,
    column,
    expected_state,
    id_column,
    is_continuous,
    level_feature,
    rename_known,
    source_columns,
    state_numbers,
)
from prefermab.programme.tables.naming import ACTION_SEEN as ACTION_SEEN
from prefermab.programme.tables.naming import OPT_IN
from prefermab.programme.tables.naming import SINCE_ACTION as SINCE_ACTION
from prefermab.programme.tables.naming import SINCE_SEEN as SINCE_SEEN
from prefermab.programme.tables.table import first_row, row_in

LEAST_LIKELY_CHANGE = 0.05
"""A reason does not mention a change of state that is less likely than this."""


@dataclasses.dataclass(frozen=True)
class Participants:
    """The ids of the people of a table, and who of them is opted in."""

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
    """For each column, how many cells are empty or hold a value that the model does not know."""
    outside: np.ndarray
    """For each person, how many features lie outside of the training's range; at least 1 if the
    features are unusual together."""
    unlike: dict[str, int]
    """For each column, how many people lie outside."""
    states_read: dict[str, str]
    """The names of states that were given as numbers."""

    @property
    def incomplete(self) -> int:
        """How many people have an unknown feature, or one that is treated as unknown."""
        return int(np.isnan(self.features).any(axis=1).sum())

    @property
    def n_unlike(self) -> int:
        """How many people are unlike those that the model was trained on."""
        return int((self.outside > 0).sum())


def read_roster(model: Model, frame: pl.DataFrame, where: str) -> Roster:
    """Reads what the model needs of a table; raises an error that names the first wrong cell."""
    if frame.height == 0:
        raise InputError(f"{where}: there are no rows; expected one for each person.")
    frame = rename_known(frame, model_columns(model), where)
    ids = id_column(frame, where)
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
    """The names of the states that a column gives as numbers; empty if it gives names, or if the
    names of states are numbers themselves."""
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
    numbers = state_numbers(model, given, ids, where, pl.Series(present))
    missing = numbers.is_null().to_numpy() & present
    if missing.any():
        row = int(missing.argmax())
        raise InputError(
            f"{where}: {row_in(where, row)} has no state; expected {expected_state(model)}."
        )
    kind = np.float32 if is_continuous(model) else np.int32
    return np.where(present, numbers.fill_null(0).to_numpy(), 0).astype(kind)


def read_features(
    model: Model, frame: pl.DataFrame, where: str, unknown: dict[str, int]
) -> np.ndarray:
    """Features by name, NaN where unknown; a missing column is unknown for everyone."""
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
    """Costs (arm, action): the model's, or those in columns `cost_<action>`."""
    costs = np.zeros((frame.height, len(model.action_names)))
    if model.costs is not None:
        costs[:] = model.costs
    for place, action in enumerate(model.action_names[1:], start=1):
        name = f"cost_{action}"
        if name in frame.columns:
            given = as_amounts(frame[name], where)
            if model.costs is not None:
                if given.null_count():
                    unknown[name] += given.null_count()
                given = given.fill_null(model.costs[place])
            if given.null_count():
                raise InputError(
                    f"{where}: the column '{name}' must hold costs of at least 0, but "
                    f"{row_in(where, first_row(given.is_null()))} is empty."
                )
            costs[:, place] = given.to_numpy()
        elif model.costs is None:
            raise InputError(
                f"{where}: the column '{name}' is missing: costs differ between the arms of this "
                "model."
            )
    return costs


def model_columns(model: Model) -> list[str]:
    """All columns of a table of people that a model reads.

    >>> import prefermab as pm
    >>> from prefermab.programme.planning.roster import model_columns
    >>> model_columns(pm.load("armman"))[:5]
    ['id', 'state', 'opt_in', 'cost_call', 'feature_0']
    """
    costs = [f"cost_{action}" for action in model.action_names[1:]]
    features = source_columns(model.feature_names)
    return ["id", "state", OPT_IN, *costs, *sorted(sighting_columns(model)), *features]


def sighting_columns(model: Model) -> set[str]:
    """The columns that say when people were seen; only models of unseen states read them.

    >>> import prefermab as pm
    >>> from prefermab.programme.planning.roster import sighting_columns
    >>> sighting_columns(pm.load("armman")), len(sighting_columns(pm.load("armman-unseen")))
    (set(), 3)
    """
    return set() if model.sightings is None else {SINCE_SEEN, ACTION_SEEN, SINCE_ACTION}


def read_places(
    model: Model, tree: Sightings, frame: pl.DataFrame, ids: pl.Series, present: np.ndarray,
    where: str,
) -> np.ndarray:  # fmt: skip
    """What is known of each person, as the number of a place; of people who are out, nothing."""
    needed = pl.Series(present)
    given = frame["state"] if "state" in frame.columns else pl.Series("state", [None] * len(ids))
    states = state_numbers(model, given, ids, where, needed).fill_null(-1).to_numpy()
    if SINCE_SEEN not in frame.columns and (states[present] >= 0).any():
        raise InputError(
            f"{where}: the column '{SINCE_SEEN}' is missing; this model needs the rounds since a "
            "state was seen: 0 for a state that is seen now, empty for people never seen."
        )
    since = _whole(frame, SINCE_SEEN, where)
    missing = pl.Series(np.isnan(since) & (states >= 0) & present)
    if missing.any():
        row = first_row(missing)
        raise InputError(
            f"{where}: {row_in(where, row)} has a state but no {SINCE_SEEN}; expected a whole "
            "number, 0 for a state that is seen now."
        )
    states = np.where(present, states, -1)
    since = np.where(states >= 0, since, np.where(present, since, np.nan))
    return tree.place(
        states, *tree.fill_unknown(states, since, _actions(tree, frame, since, where))
    )


def _actions(
    tree: Sightings, frame: pl.DataFrame, since: np.ndarray, where: str
) -> np.ndarray | None:
    """The action in the round in which the state was seen: from its own column, or else 1 if the
    last action was in that round; None if there is neither column."""
    if ACTION_SEEN in frame.columns:
        places = {name.lower(): place for place, name in enumerate(tree.actions)}
        text = as_labels(frame[ACTION_SEEN]).str.to_lowercase()
        found = text.replace_strict(places, default=None, return_dtype=pl.Float64)
        wrong = text.is_not_null() & found.is_null()
        if wrong.any():
            row = first_row(wrong)
            raise InputError(
                f"{where}: {row_in(where, row)} has the {ACTION_SEEN} '{text[row]}'; expected one "
                f"of {', '.join(tree.actions)}."
            )
        return found.fill_null(np.nan).to_numpy()
    if SINCE_ACTION in frame.columns:
        return np.where(_whole(frame, SINCE_ACTION, where) == since, 1.0, 0.0)
    return None


def _whole(frame: pl.DataFrame, name: str, where: str) -> np.ndarray:
    """A column of whole numbers of at least 0, NaN where it is empty or missing."""
    if name not in frame.columns:
        return np.full(frame.height, np.nan)
    return as_counts(frame[name], where).fill_null(np.nan).to_numpy()


def place_texts(model: Model, tree: Sightings) -> list[str]:
    """Each place in words, with the most likely states of typical people there."""
    # The first numbers of a place's code are beliefs about the state; see `Unseen.encode`.
    beliefs = (np.asarray(model.network.perception.codes)[:, : len(tree.states)] + 1) / 2
    known = zip(tree.roots.tolist(), tree.rounds_since.tolist(), beliefs, strict=True)
    return [_text(tree, *place) for place in known]


def _text(tree: Sightings, root: int, since: int, belief: np.ndarray) -> str:
    if root == len(tree.states):
        likely = int(belief.argmax())
        return f"never seen: {belief[likely]:.0%} likely to be {tree.states[likely]}"
    if since == 0:
        return f"state {tree.states[root]}"
    long = f"{since} round{'s' * (since > 1)}{' or more' * (since == tree.rounds)}"
    other = int(np.where(np.arange(len(belief)) == root, -1.0, belief).argmax())
    seen = f"not seen for {long}, then {tree.states[root]}"
    if belief[other] < LEAST_LIKELY_CHANGE:
        return f"{seen}: {belief[root]:.0%} likely to be so still"
    return f"{seen}: {belief[other]:.0%} likely to have become {tree.states[other]}"
