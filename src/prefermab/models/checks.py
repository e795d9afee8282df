"""Checks of what a model is given: states, features and costs of arms, and its domain."""

from typing import TYPE_CHECKING, Any

import numpy as np

from prefermab.domains.base import ContinuousDomain, Domain
from prefermab.errors import InputError, amount, floats, is_amount, reals

if TYPE_CHECKING:
    from prefermab.models.model import Model


def checked_states(model: "Model", states: Any) -> np.ndarray:
    """States (arm,) as numbers that the model knows."""
    given = reals(states, "states", ndim=(1,))
    if model.network.perception.continuous:
        if given.size and (given.min() < 0 or given.max() > 1):
            raise InputError("states must lie between 0 and 1.")
        return given.astype(np.float32)
    top = len(model.state_names) - 1
    wrong = np.flatnonzero((given != np.round(given)) | (given < 0) | (given > top))
    if wrong.size:
        raise InputError(
            f"states must be whole numbers from 0 to {top}, "
            f"but states[{wrong[0]}] is {given[wrong[0]]:g}."
        )
    return given.astype(np.int32)


def checked_places(model: "Model", states: Any, since: Any, actions: Any) -> np.ndarray:
    """What is known of arms as numbers that the model knows: their states, or where these are not
    always seen, those last seen, rounds since and what was done then."""
    if model.sightings is None:
        if since is not None or actions is not None:
            raise InputError("rounds_since_seen: this model is for states that are seen.")
        return checked_states(model, states)
    given = floats(states, "states")
    known = ~np.isnan(given)
    state = np.where(known, checked_states(model, np.where(known, given, 0)), -1)
    since = np.where(known, 0.0, np.nan) if since is None else since
    return model.sightings.place(state, *model.sightings.fill_unknown(state, since, actions))


def checked_features(model: "Model", features: Any, n_arms: int) -> np.ndarray:
    """Features (arm, feature), NaN where unknown."""
    try:
        with np.errstate(over="ignore"):
            given = np.asarray(features, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError("features must be an array of numbers.") from None
    wanted = (n_arms, len(model.feature_names))
    if given.shape != wanted:
        raise InputError(
            f"features must have the shape (arm, feature) = {wanted}, not {given.shape}."
        )
    if np.isinf(given).any():
        raise InputError("features must be finite, or NaN where unknown.")
    return given


def checked_costs(model: "Model", costs: Any, n_arms: int) -> np.ndarray:
    """Costs (arm, action), by default the model's own."""
    if costs is None and model.costs is None:
        raise InputError("costs differ between the arms of this model: give costs (arm, action).")
    given = reals(model.costs if costs is None else costs, "costs", ndim=(1, 2))
    n_actions = len(model.action_names)
    if given.shape not in {(n_actions,), (n_arms, n_actions)} or (given < 0).any():
        raise InputError(f"costs must be {n_actions} numbers of at least 0, for all or each arm.")
    for one in given[~is_amount(given)]:
        amount(one, "each cost")
    return np.broadcast_to(given, (n_arms, n_actions))


def check_fits(model: "Model", domain: Domain) -> None:
    """Raises unless the domain has the numbers of states, actions and features of the model."""
    continuous = isinstance(domain, ContinuousDomain)
    if continuous != model.network.perception.continuous:
        kinds = ("finitely many states", "a state between 0 and 1")
        own, other = kinds[not continuous], kinds[continuous]
        raise InputError(f"the model knows {own}, the domain '{domain.name}' has {other}.")
    for what in ("state", "action", "feature"):
        own, other = len(getattr(model, f"{what}_names")), len(getattr(domain, f"{what}_names"))
        if what == "state" and not continuous:
            own, other = len(model.network.perception.points), domain.n_cells
        if own != other:
            raise InputError(
                f"the model knows {own} {what}s, the domain '{domain.name}' has {other}."
            )
