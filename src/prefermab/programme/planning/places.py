"""People whose state is not always seen: from columns of a table to what a model knows of them."""

import numpy as np
import polars as pl

from prefermab.domains.sightings import Sightings
from prefermab.errors import InputError
from prefermab.model import Model
from prefermab.programme.columns import as_labels, as_numbers, state_numbers
from prefermab.programme.tables import first_row, row_in

SINCE_SEEN, ACTION_SEEN, SINCE_ACTION = "rounds_since_seen", "action_seen", "rounds_since_action"
LIKELY = 0.05
"""A change that is less likely than this is not told."""


def sighting_columns(model: Model) -> set[str]:
    """The columns that say when people were seen, where a model goes by them.

    >>> import prefermab as pm
    >>> from prefermab.programme.planning.places import sighting_columns
    >>> sighting_columns(pm.load("armman")), len(sighting_columns(pm.load("armman-unseen")))
    (set(), 3)
    """
    return set() if model.sightings is None else {SINCE_SEEN, ACTION_SEEN, SINCE_ACTION}


def read_places(
    model: Model, tree: Sightings, frame: pl.DataFrame, ids: pl.Series, present: np.ndarray,
    where: str,
) -> np.ndarray:  # fmt: skip
    """What is known of each person, as the model numbers it; nothing of those who are out."""
    needed = pl.Series(present)
    given = frame["state"] if "state" in frame.columns else pl.Series("state", [None] * len(ids))
    states = state_numbers(model, given, ids, where, needed).fill_null(-1).to_numpy()
    if SINCE_SEEN not in frame.columns and (states[present] >= 0).any():
        raise InputError(
            f"{where}: the column '{SINCE_SEEN}' is missing; this model goes by how long ago a "
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
    return tree.place(states, *tree.told(states, since, _actions(tree, frame, since, where)))


def _actions(
    tree: Sightings, frame: pl.DataFrame, since: np.ndarray, where: str
) -> np.ndarray | None:
    """What was done when the state was seen: as a column says, or whether the last action was in
    the same round; None where nothing is known of it."""
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
    """A column of whole numbers from 0, NaN where it is empty or not there."""
    if name not in frame.columns:
        return np.full(frame.height, np.nan)
    numbers = as_numbers(frame[name], where).cast(pl.Float64)
    wrong = ((numbers < 0) | (numbers != numbers.round())).fill_null(False)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{name}' must hold whole numbers of at least 0, but "
            f"{row_in(where, row)} holds {numbers[row]:g}."
        )
    return numbers.fill_null(np.nan).to_numpy()


def place_texts(model: Model, tree: Sightings) -> list[str]:
    """What each place says of somebody, in words, by what is believed of typical people there."""
    # The first numbers of a place's code are that belief; see `Unseen.encode`.
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
    told = f"not seen for {long}, then {tree.states[root]}"
    if belief[other] < LIKELY:
        return f"{told}: {belief[root]:.0%} likely to be so still"
    return f"{told}: {belief[other]:.0%} likely to have become {tree.states[other]}"
