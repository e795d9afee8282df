"""Histories of people whose states are not always seen: consecutive rounds with the actions, and
with the states that were seen.

The state of a row is the state before its action. If states are seen by acting (`acted`), it is the
state in which the action found the person. An action that did not reach the person changes nothing
and shows nothing, as in `prefermab.domains.Unseen`. Otherwise (`some`) a state is seen in some
rounds, with the same probability whatever the action is.
"""

import dataclasses

import numpy as np
import polars as pl

from prefermab.errors import InputError, unknown
from prefermab.programme.logs.labels import Labels
from prefermab.programme.tables.table import row_in

WAYS_SEEN_IN_LOG = ("acted", "always", "some")

NEGLIGIBLE_SHARE = 0.05
"""Largest share of rows without a state in a log whose states count as always seen; and largest
share of states seen without an action in a log whose states count as seen by acting."""

MOST_ROWS_WITHOUT_STATE = 0.5
"""Share of rows without a state above which `seen="always"` is an error."""

FEWEST_ROWS_OF_ACTION = 30
"""Fewest rows of an action for the check whether it shows states as often as other actions."""


@dataclasses.dataclass(frozen=True, eq=False)
class Histories:
    """Histories, each of consecutive rounds of one person; shorter ones are padded at the end.

    A history ends before a missing row and after an unknown action. The next history of the same
    person is independent of it: it starts without a known state.
    """

    way: str
    """`acted` or `some`."""
    chance: float
    """The probability that a state is seen: share of the actions (`acted`) or of all rows
    (`some`)."""
    why: str
    """The reason for `way`, in a sentence."""
    person: np.ndarray
    """(history,): the number of the person."""
    new: np.ndarray
    """(history,): whether it starts with the person's first row."""
    state: np.ndarray
    """(history, round): the state, -1 where it was not seen."""
    action: np.ndarray
    """(history, round): the action, 0 where an action did not reach the person."""
    profile: np.ndarray
    """(history, round): the person's features, as a position in the log's profiles."""
    length: np.ndarray
    """(history,): the number of rounds."""

    def for_people(self, people: np.ndarray) -> "Histories":
        """The histories of the people for whom the mask (person,) is true."""
        return self.select(np.flatnonzero(people[self.person]))

    def select(self, chosen: np.ndarray) -> "Histories":
        """The histories at these positions."""
        parts = ("person", "new", "state", "action", "profile", "length")
        own = {name: getattr(self, name)[chosen] for name in parts}
        return dataclasses.replace(self, **own)

    @property
    def since(self) -> np.ndarray:
        """(history, round): rounds since the last earlier sighting, -1 where there is none."""
        found, last = np.full(self.state.shape, -1), np.full(len(self.state), -1)
        for now in range(self.state.shape[1]):
            found[:, now] = np.where(last >= 0, now - last, -1)
            last = np.where(self.state[:, now] >= 0, now, last)
        return found

    @property
    def last_seen(self) -> np.ndarray:
        """(history, round): the last state seen earlier, -1 where there is none."""
        place = np.arange(self.state.shape[1]) - self.since
        seen = np.take_along_axis(self.state, np.minimum(place, self.state.shape[1] - 1), axis=1)
        return np.where(self.since >= 0, seen, -1)

    @property
    def has_round(self) -> np.ndarray:
        """(history, round): whether the history has this round, or it is padding."""
        return np.arange(self.state.shape[1]) < self.length[:, None]

    @property
    def sighted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Person, state and action of every sighting."""
        history, now = np.nonzero(self.state >= 0)
        return self.person[history], self.state[history, now], self.action[history, now]

    def rounds_between_sightings(self, n_actions: int) -> np.ndarray:
        """(action,): the number of rounds under each action from one sighting to the next."""
        ahead = np.flip(np.maximum.accumulate(np.flip(self.state >= 0, 1), 1), 1)
        within = np.append(ahead[:, 1:], np.zeros((len(ahead), 1), bool), axis=1)
        known = within & ((self.since >= 0) | (self.state >= 0))
        return np.bincount(self.action[known], minlength=n_actions)

    def check(self, labels: Labels, where: str) -> None:
        """Raises an error if nothing can be learned from these histories."""
        if not ((self.state >= 0) & (self.since >= 0)).any():
            raise InputError(
                f"{where}: no person's state was seen twice with a row and a known action for each "
                "week between: nothing can be learned about how states change."
            )
        for name, n in zip(
            labels.actions, self.rounds_between_sightings(len(labels.actions)), strict=True
        ):
            if not n:
                raise InputError(
                    f"{where}: no week under the action '{name}' lies between two states that were "
                    "seen of a person: nothing can be learned about it."
                )


def find_histories(
    frame: pl.DataFrame, labels: Labels, seen: str | None, where: str, *, has_reached: bool
) -> Histories | None:
    """The histories of checked rows; None if states are always seen.

    Args:
        frame: Rows sorted by person and time, with states and actions as numbers.
        labels: The labels of these numbers.
        seen: How states are seen; found from the log if None.
        where: Name of the log.
        has_reached: Whether the log has a column that says whom actions reached.
    """
    way = _way(frame, labels, seen, where)
    if way == "always":
        return None
    filled, acted = _filled(frame), _acted(frame)
    chance = (filled & acted).sum() / max(acted.sum(), 1) if way == "acted" else filled.mean()
    done = frame["action"].fill_null(0).to_numpy()
    if way == "acted":
        found = filled | (frame["reached"].to_numpy() if has_reached else False)
        done = np.where(found, done, 0)
    why = _reason(frame, way, given=seen is not None)
    return _cut(frame, done, way, float(chance), why)


def _way(frame: pl.DataFrame, labels: Labels, seen: str | None, where: str) -> str:
    """How states are seen: `seen` if the log agrees with it, else an error; found if None."""
    if seen is not None and seen not in WAYS_SEEN_IN_LOG:
        raise unknown("way to see", str(seen), WAYS_SEEN_IN_LOG)
    empty = ~_filled(frame)
    if seen is None and empty.mean() <= NEGLIGIBLE_SHARE:
        return "always"
    if seen == "always":
        if empty.mean() > MOST_ROWS_WITHOUT_STATE:
            raise InputError(
                f"{where}: {empty.sum():,} of {len(empty):,} rows have no state, the first of them "
                f"{_first(frame, empty, where)}, and states were expected to be seen always; "
                "`learn` takes such logs if `seen` is left out."
            )
        return "always"
    against = _against_acted(frame, labels, where)
    if seen == "acted" and against:
        raise InputError(f"{where}: seen is 'acted', but {against}; leave it out, or give 'some'.")
    if seen == "some":
        _check_some(frame, where, by_actions=against is None)
    return seen or ("some" if against else "acted")


def _against_acted(frame: pl.DataFrame, labels: Labels, where: str) -> str | None:
    """The reason why states are not seen by acting only; None if there is none."""
    filled, acted = _filled(frame), _acted(frame)
    # A state is often written down when somebody joins.
    joined = frame["steps"].is_null().to_numpy()
    beyond = filled & ~(acted & frame["reached"].to_numpy()) & ~joined
    if not (filled & acted).any():
        return "no row with an action has a state"
    if beyond.sum() > NEGLIGIBLE_SHARE * filled.sum():
        return (
            f"{beyond.sum():,} of {filled.sum():,} states are of rows in which nobody was acted on "
            f"(or reached), the first of them {_first(frame, beyond, where)}"
        )
    action = frame["action"].fill_null(0).to_numpy()
    rows, shown = (np.bincount(each, minlength=len(labels.actions)) for each in (
        action, action[filled]))  # fmt: skip
    shares = shown[1:] / np.maximum(rows[1:], 1)
    blind = (rows[1:] >= FEWEST_ROWS_OF_ACTION) & (shares < shares.max() / 2)
    if not blind.any():
        return None
    place = 1 + int(blind.argmax())
    return (
        f"the action '{labels.actions[place]}' showed a state in {shown[place]:,} of "
        f"{rows[place]:,} rows, far less often than others, the first without one "
        f"{_first(frame, (action == place) & ~filled, where)}"
    )


def _check_some(frame: pl.DataFrame, where: str, *, by_actions: bool) -> None:
    filled = _filled(frame)
    if filled.all():
        raise InputError(
            f"{where}: seen is 'some', but every row has a state, from "
            f"{_first(frame, filled, where)} on; leave it out."
        )
    if by_actions:
        raise InputError(
            f"{where}: seen is 'some', but states are in rows with an action only, such as "
            f"{_first(frame, filled & _acted(frame), where)}; leave it out, or give 'acted'."
        )


def _reason(frame: pl.DataFrame, way: str, *, given: bool) -> str:
    filled, acted = _filled(frame), _acted(frame)
    have = f"{filled.sum():,} of {len(filled):,} rows have a state"
    as_given = "; given by `seen`" if given else ""
    if way == "acted":
        return (
            f"States count as seen by acting only (`acted`{as_given}): {have}, and in "
            f"{(filled & acted).sum():,} of these somebody was acted on."
        )
    without = (filled & ~acted).sum()
    return (
        f"States count as seen now and then, whatever is done (`some`{as_given}): {have}, and in "
        f"{without:,} of these nobody was acted on."
    )


def _cut(frame: pl.DataFrame, done: np.ndarray, way: str, chance: float, why: str) -> Histories:
    """Cuts rows into histories, and arranges them as arrays (history, round)."""
    person, steps = frame["person"].to_numpy(), frame["steps"].fill_null(0).to_numpy()
    joined = frame["steps"].is_null().to_numpy()
    unknown_before = np.append(False, frame["action"].is_null().to_numpy()[:-1])
    begins = joined | (steps != 1) | unknown_before
    history = np.cumsum(begins) - 1
    place = np.arange(len(person)) - np.flatnonzero(begins)[history]
    shape = (int(begins.sum()), int(place.max()) + 1)

    def wide(values: np.ndarray, empty: int) -> np.ndarray:
        table = np.full(shape, empty)
        table[history, place] = values
        return table

    states = frame["state"].fill_null(-1).to_numpy()
    return Histories(
        way, chance, why, person[begins], joined[begins], wide(states, -1), wide(done, 0),
        wide(frame["profile"].to_numpy(), 0), np.bincount(history),
    )  # fmt: skip


def _filled(frame: pl.DataFrame) -> np.ndarray:
    return frame["state"].is_not_null().to_numpy()


def _acted(frame: pl.DataFrame) -> np.ndarray:
    return (frame["action"] > 0).fill_null(False).to_numpy()


def _first(frame: pl.DataFrame, which: np.ndarray, where: str) -> str:
    """The first such row of the file, as messages name it."""
    return row_in(where, int(frame["row"].to_numpy()[which].min()))
