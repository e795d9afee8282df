"""Checks of a domain that a user wrote, on a few arms, before anything is computed with it.

First the names; then the shape and type of what each method returns, by tracing, which is fast;
then the values for a few arms that the domain draws, in one small computation.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prefermab.arms.observation import Arm, State, TrialKeys
from prefermab.domains.base import ContinuousDomain, Domain, FiniteDomain
from prefermab.errors import InputError, count, number

ARMS_CHECKED, STARTS_CHECKED = 8, 16
"""Number of arms that are checked, and of first states of each."""

MOST_CHECKED = 2_000_000
"""The most probabilities that are checked; if there are more, only some states are checked."""

STEP_SAMPLES = 1000
"""Number of steps from each of a few states where a domain has a `step` of its own."""

ROUNDING = 1e-3
"""How far from 1 the sum of probabilities in single precision may be."""

_CHECKED: "weakref.WeakValueDictionary[int, Domain]" = weakref.WeakValueDictionary()
_NOT_TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)

# Runs once or twice on little data: optimised code would cost more time than it saves.
_jit: Any = eqx.filter_jit
_compiled = partial(_jit, compiler_options={"xla_backend_optimization_level": 0})


def check(domain: Domain) -> None:
    """Raises an error if a domain contradicts itself.

    Examples are probabilities that do not add up to 1, a negative cost, too few names, or a method
    that cannot be compiled. The checks draw a few arms, always the same. `pm.evaluate`,
    `pm.pretrain`, `pm.finetune`, `pm.simulate` and the Gymnasium environments call this for a
    domain of your own.

    Args:
        domain: The domain to check.

    Raises:
        InputError: The first thing that is wrong, in one sentence.

    >>> import jax.numpy as jnp
    >>> import prefermab as pm
    >>> class Leaky(pm.domains.Synthetic):
    ...     name = "leaky"
    ...     def row(self, arm, cell, action):
    ...         return jnp.array([0.2, 0.6])
    >>> pm.domains.check(Leaky())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: transitions of 'leaky': row gave [0.2 0.6], which adds up to 0.8
    and not to 1, in the state 'bad' under the action 'none', for an arm with the parameters ...
    """
    check_kind(domain)
    _check_names(domain)
    _check_results(domain)
    _check_values(domain)
    if isinstance(domain, FiniteDomain) and type(domain).step is not FiniteDomain.step:
        _check_steps(domain)


def check_once(domain: Any) -> Domain:
    """Checks a domain before a computation, unless it ships with the package or was checked
    before; returns it."""
    check_kind(domain)
    ships = type(domain).__module__.startswith("prefermab.")
    if not ships and _CHECKED.get(id(domain)) is not domain:
        check(domain)
        _CHECKED[id(domain)] = domain
    return domain


def check_kind(domain: Any) -> None:
    """Raises an error unless this is a domain, and not its class, its name or None."""
    if isinstance(domain, type) and issubclass(domain, Domain):
        raise InputError(f"domain is a class: write {domain.__name__}().")
    if not isinstance(domain, Domain):
        own = '; a model holds no domain of your own: give domain=pm.domains.get("FILE.py:CLASS")'
        own *= domain is None
        raise InputError(f"domain must be a Domain such as Armman(), not {domain!r}{own}.")


def _check_names(domain: Domain) -> None:
    kinds = {"state_names": "state", "action_names": "action", "parameter_names": "parameter"}
    for attribute, kind in kinds.items():
        what = f"{attribute} of '{domain.name}'"
        names = getattr(domain, attribute, None)
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{what} must be a tuple of names, one for each {kind}.")
        least = 2 if kind == "action" else 1
        if len(names) < least:
            also = ", the passive one first" if kind == "action" else ""
            raise InputError(f"{what} must name at least {least} {kind}{'s' * (least > 1)}{also}.")
        _check_different(names, what)
    _check_different(domain.feature_names, f"feature_names of '{domain.name}'")
    count(domain.usual_arms, f"usual_arms of '{domain.name}'")
    number(domain.usual_budget, f"usual_budget of '{domain.name}'")


def _check_different(names: Any, what: str) -> None:
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise InputError(f"{what} must differ, but '{twice[0]}' is there twice.")


def _check_results(domain: Domain) -> None:
    """Checks what each method returns, one by one, so that an error can name the method."""
    key, whole = jax.random.key(0), jax.ShapeDtypeStruct((), jnp.int32)
    arm = _traced(domain, "draw", domain.draw, key)
    if not jax.tree.leaves(arm):
        raise InputError(f"draw of '{domain.name}' must return an arm: an array or a tree of them.")
    n_cells = _traced(domain, "cells", lambda: domain.cells).shape[0]
    _array(domain, "parameters", (len(domain.parameter_names),), "parameter", arm)
    _array(domain, "observe", (len(domain.feature_names),), "feature", arm, whole)
    _array(domain, "costs", (domain.n_actions,), "action", arm)
    state = _array(domain, "start", (), "", key, arm)
    if isinstance(domain, FiniteDomain) and not jnp.issubdtype(state.dtype, jnp.integer):
        raise InputError(f"start of '{domain.name}' must be a whole number, not {state.dtype}.")
    _array(domain, "reward_at", (), "", arm, state)
    _array(domain, "cell", (), "", state)
    _array(domain, "encode", None, "", state)
    if isinstance(domain, ContinuousDomain):
        moments = _traced(domain, "moments", domain.moments, arm, state, whole)
        sound = isinstance(moments, tuple | list) and len(moments) == 2
        if not sound or any(getattr(part, "shape", None) != () for part in moments):
            raise InputError(
                f"moments of '{domain.name}' must return two numbers, mean and standard deviation."
            )
    _array(domain, "row", (n_cells,), "state", arm, whole, whole)
    moved = _array(domain, "step", (), "", key, arm, state, whole)
    if moved.dtype != state.dtype:
        raise InputError(
            f"step of '{domain.name}' must return a state as start does, {state.dtype}, "
            f"not {moved.dtype}."
        )


def _traced(domain: Domain, what: str, method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return jax.eval_shape(method, *arguments)
    except InputError:
        raise
    except _NOT_TRACED:
        raise InputError(
            f"{what} of '{domain.name}' cannot be compiled: methods run inside jax.jit and vmap, "
            "so use jnp.where instead of if, and jax.numpy instead of numpy."
        ) from None
    except Exception as error:
        text = " ".join(str(error).split())[:200].rstrip(".")
        raise InputError(
            f"{what} of '{domain.name}' fails: {type(error).__name__}: {text}."
        ) from error


def _array(
    domain: Domain, what: str, shape: tuple[int, ...] | None, each: str, *arguments: Any
) -> Any:
    """Checks that a method returns an array of this shape, or with one axis if None is given."""
    found = _traced(domain, what, getattr(domain, what), *arguments)
    if not hasattr(found, "shape"):
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise InputError(
            f"{what} of '{domain.name}' must return an array of jax.numpy, not {kind}."
        )
    if found.shape != shape if shape is not None else len(found.shape) != 1:
        wanted = "numbers along one axis"
        if shape is not None:
            wanted = f"{shape[0]} numbers, one for each {each}" if shape else "one number"
        raise InputError(
            f"{what} of '{domain.name}' must return {wanted}, "
            f"not an array of the shape {found.shape}."
        )
    return found


class _Sample(eqx.Module):
    """What the methods of a domain return for a few arms; the first axis is that of arms."""

    parameters: Any
    features: Any
    costs: Any
    starts: Any
    rewards: Any
    rows: Any
    moments: Any


def _keys(size: int) -> TrialKeys:
    return jax.random.split(jax.random.key(0), size)


def _checked_cells(domain: Domain, most: int) -> np.ndarray:
    """All cells, or `most` of them, evenly spaced."""
    return np.unique(np.linspace(0, domain.n_cells - 1, min(domain.n_cells, most)).astype(int))


@_compiled
def _sample(domain: Domain, keys: TrialKeys) -> _Sample:
    n_actions, n_cells = domain.n_actions, domain.n_cells
    cells = jnp.asarray(
        _checked_cells(domain, max(2, MOST_CHECKED // (ARMS_CHECKED * n_actions * n_cells)))
    )
    states, actions = domain.cells[cells], jnp.arange(n_actions)
    moments = domain.moments if isinstance(domain, ContinuousDomain) else None

    def each(function: Callable[..., Any], arm: Arm, values: Any) -> Any:
        one = lambda value, action: function(arm, value, action)  # noqa: E731
        return jax.vmap(lambda value: jax.vmap(lambda a: one(value, a))(actions))(values)

    def one_arm(arm: Arm) -> _Sample:
        return _Sample(
            parameters=domain.parameters(arm),
            features=domain.observe(arm, jnp.zeros((), int)),
            costs=domain.costs(arm),
            starts=jax.vmap(lambda key: domain.start(key, arm))(keys[ARMS_CHECKED:]),
            rewards=jax.vmap(lambda state: domain.reward_at(arm, state))(states),
            rows=each(domain.row, arm, cells),
            moments=None if moments is None else each(moments, arm, states),
        )

    return jax.vmap(one_arm)(jax.vmap(domain.draw)(keys[:ARMS_CHECKED]))


def _check_values(domain: Domain) -> None:
    found = jax.tree.map(np.asarray, _sample(domain, _keys(ARMS_CHECKED + STARTS_CHECKED)))
    cells = _checked_cells(domain, found.rows.shape[1])
    complain = _Complaints(domain, found.parameters, cells)
    complain.refuse("features", "infinite", np.isinf(found.features), found.features)
    complain.refuse("costs", "not finite", ~np.isfinite(found.costs), found.costs, action=1)
    complain.refuse("costs", "negative", found.costs < 0, found.costs, action=1)
    if found.costs[:, 0].any():
        at = _first(found.costs[:, 0])
        problem = f"costs of '{domain.name}': action 0 is the passive one and must cost 0"
        complain.fail(f"{problem}, not {found.costs[at][0]:.4g}", at)
    complain.refuse("rewards", "not finite", ~np.isfinite(found.rewards), found.rewards, cell=1)
    top = domain.n_cells - 1 if isinstance(domain, FiniteDomain) else 1
    if isinstance(domain, FiniteDomain | ContinuousDomain):
        outside = ~((found.starts >= 0) & (found.starts <= top))
        complain.refuse("start", f"not from 0 to {top}", outside, found.starts)
    if found.moments is not None:
        mean, spread = found.moments
        complain.refuse("moments", "not finite", ~np.isfinite(mean), mean, cell=1, action=2)
        wrong = ~(np.isfinite(spread) & (spread >= 0))
        complain.refuse("moments", "no standard deviation", wrong, spread, cell=1, action=2)
    sums = found.rows.sum(axis=-1, dtype=np.float64)
    for why, wrong in (
        ("which is not finite", ~np.isfinite(found.rows).all(axis=-1)),
        ("which is negative in places", (found.rows < -(ROUNDING**2)).any(axis=-1)),
        ("which adds up to {total:.4g} and not to 1", np.abs(sums - 1) > ROUNDING),
    ):
        if wrong.any():
            at = _first(wrong)
            row = np.array2string(found.rows[at], precision=4, threshold=8)
            problem = (
                f"transitions of '{domain.name}': row gave {row}, {why.format(total=sums[at])}"
            )
            complain.fail(problem, at, cell=1, action=2)


def _first(wrong: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


class _Complaints:
    """Errors about a sample that name the arm, the state and the action."""

    def __init__(self, domain: Domain, parameters: np.ndarray, cells: np.ndarray):
        self.domain, self.parameters, self.cells = domain, parameters, cells

    def refuse(
        self, what: str, why: str, wrong: np.ndarray, values: np.ndarray, **axes: int
    ) -> None:
        """Raises an error that shows the first wrong value, if there is one."""
        if wrong.any():
            at = _first(wrong)
            self.fail(f"{what} of '{self.domain.name}': {values[at]:.4g} is {why}", at, **axes)

    def fail(self, message: str, at: tuple[int, ...], **axes: int) -> NoReturn:
        """Raises an error with the place; `axes` say which axis is that of cells and actions."""
        place = []
        if "cell" in axes:
            cell = int(self.cells[at[axes["cell"]]])
            finite = isinstance(self.domain, FiniteDomain)
            state = self.domain.state_names[cell] if finite else f"{self.domain.cells[cell]:.3g}"
            place.append(f"in the state '{state}'")
        if "action" in axes:
            place.append(f"under the action '{self.domain.action_names[at[axes['action']]]}'")
        message += f", {' '.join(place)}" if place else ""
        arm = np.array2string(self.parameters[at[0]], precision=3, threshold=8)
        raise InputError(f"{message}, for an arm with the parameters {arm}.")


@_compiled
def _steps(domain: Domain, arm: Arm, cells: Any, keys: TrialKeys) -> Any:
    kind = jax.eval_shape(domain.start, keys[0], arm).dtype

    def reached(cell: State, action: Any) -> Any:
        state = domain.cells[cell].astype(kind)
        moved = jax.vmap(lambda key: domain.step(key, arm, state, action))(keys)
        return moved, domain.row(arm, cell, action)

    actions = jnp.arange(domain.n_actions)
    return jax.vmap(lambda cell: jax.vmap(lambda action: reached(cell, action))(actions))(cells)


def _check_steps(domain: FiniteDomain) -> None:
    """Checks that `step` agrees with `row`, which oracles and bounds use."""
    cells, n_cells = _checked_cells(domain, ARMS_CHECKED), domain.n_cells
    arm = domain.draw(jax.random.key(1))
    moved, rows = (
        np.asarray(part) for part in _steps(domain, arm, jnp.asarray(cells), _keys(STEP_SAMPLES))
    )
    complain = _Complaints(domain, np.asarray(domain.parameters(arm))[None], cells)
    outside = (moved < 0) | (moved >= n_cells)
    where = {"cell": 1, "action": 2}
    why = f"not a state from 0 to {n_cells - 1}"
    complain.refuse("step", why, outside[None], moved[None], **where)
    # The distance between frequencies and probabilities is at most √(n / 4N) on average, and
    # exceeds that by 0.1 with a probability of e^(-0.02 N), two in a billion.
    allowed = 0.1 + 0.5 * np.sqrt(n_cells / STEP_SAMPLES)
    for at in np.ndindex(rows.shape[:2]):
        shares = np.bincount(moved[at], minlength=n_cells) / STEP_SAMPLES
        if np.abs(shares - rows[at]).sum() / 2 > allowed:
            most = domain.state_names[int(np.argmax(np.abs(shares - rows[at])))]
            p = rows[at][domain.state_names.index(most)]
            share = shares[domain.state_names.index(most)]
            problem = (
                f"step of '{domain.name}' does not do what row says: '{most}' is next with "
                f"probability {p:.2g} by row, but {share:.0%} of {STEP_SAMPLES:,} steps went there"
            )
            complain.fail(problem, (0, *at), **where)
