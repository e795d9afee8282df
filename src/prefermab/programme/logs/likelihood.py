"""The likelihood of the states that were seen, marginalised over hidden rounds by the forward
algorithm.

A belief is a probability of each state. In each round with a sighting, the likelihood is multiplied
by the belief in the state that was seen, and the belief becomes certain. Then the belief is
multiplied by the round's transition table. The gradient is computed by automatic differentiation.
This is equivalent to the forward-backward algorithm, without the expected transitions of each
hidden round in memory.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from prefermab.programme.logs.histories import Histories
from prefermab.programme.logs.shrinkage import contrasts

PROBABILITIES_AT_ONCE = 1 << 22
"""Most probabilities that are in memory at once."""

LEAST_LIKELIHOOD = 1e-30
"""Least probability of a sighting, so that its logarithm is finite."""

Coefficients = Float[Array, "origin contrast input"]
"""As in `shrinkage`, one row for each state; the last row is for a person's first state, and there
the coefficients of actions are not used."""


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """Histories as arrays (batch, history, ...); the last batch is padded with empty histories."""

    state: Int[Array, "batch history round"]
    action: Int[Array, "batch history round"]
    profile: Int[Array, "batch history round"]
    new: Bool[Array, "batch history"]
    terms: Float[Array, "profile term"]
    number: int

    @classmethod
    def from_histories(cls, histories: Histories, terms: np.ndarray, n_states: int) -> "Batches":
        """From histories and the terms of all profiles. Rounds after the last sighting of all are
        cut off: they do not change the likelihood."""
        seen = np.flatnonzero((histories.state >= 0).any(axis=0))
        length = int(seen[-1]) + 1 if len(seen) else 1
        number = len(histories.person)
        size = int(np.clip(PROBABILITIES_AT_ONCE // (length * n_states**2), 1, max(number, 1)))
        n_batches = -(-max(number, 1) // size)

        def cut(values: np.ndarray, empty: int) -> jax.Array:
            table = np.full((n_batches * size, *values.shape[1:]), empty, values.dtype)
            table[:number] = values
            return jnp.asarray(table.reshape(n_batches, size, *values.shape[1:]))

        def rounds(values: np.ndarray, empty: int = 0) -> jax.Array:
            return cut(values[:, :length].astype(np.int32), empty)

        return cls(
            rounds(histories.state, -1), rounds(histories.action), rounds(histories.profile),
            cut(histories.new, 0), jnp.asarray(terms, jnp.float32), number,
        )  # fmt: skip

    @property
    def arrays(self) -> tuple[jax.Array, ...]:
        """All arrays."""
        return self.state, self.action, self.profile, self.new, self.terms


def log_likelihoods(batches: Batches, at: np.ndarray) -> np.ndarray:
    """(history,): the log-likelihood of each history, given coefficients.

    >>> import numpy as np
    >>> from prefermab.programme.logs.histories import Histories
    >>> from prefermab.programme.logs.likelihood import Batches, log_likelihoods
    >>> one = Histories("some", 0.5, "", np.array([0]), np.array([True]),
    ...     np.array([[0, -1, 1]]), np.array([[0, 0, 0]]), np.array([[0, 0, 0]]),
    ...     np.array([3]))
    >>> batches = Batches.from_histories(one, np.ones((1, 1)), 2)
    >>> even = np.zeros((3, 1, 2))  # all probabilities are one half
    >>> bool(np.isclose(log_likelihoods(batches, even)[0], np.log(0.5) * 2))
    True
    """
    found = np.asarray(_likelihoods(jnp.asarray(at, jnp.float32), *batches.arrays), float)
    return found.reshape(-1)[: batches.number]


def log_likelihood_and_gradient(batches: Batches, at: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of all log-likelihoods, and its gradient."""
    each, slope = _sum_and_slope(jnp.asarray(at, jnp.float32), *batches.arrays)
    return float(np.asarray(each, float).sum()), np.asarray(slope, float)


def curvature(batches: Batches, at: np.ndarray) -> np.ndarray:
    """(coefficient, coefficient): the observed information, the negative Hessian of the
    log-likelihood."""
    return -np.asarray(_hessian(jnp.asarray(at, jnp.float32), *batches.arrays), float)


@jax.jit
def _likelihoods(at: Coefficients, state, action, profile, new, terms) -> Array:
    tables, starts = transitions_and_starts(at, terms)
    return jax.lax.map(
        lambda part: _batch_log_likelihoods(tables, starts, *part), (state, action, profile, new)
    )


@jax.jit
def _sum_and_slope(at: Coefficients, *arrays) -> tuple[Array, Coefficients]:
    def total(at: Coefficients) -> tuple[Array, Array]:
        each = _likelihoods(at, *arrays)
        return each.sum(), each

    slope, each = jax.grad(total, has_aux=True)(at)
    return each, slope


@jax.jit
def _hessian(at: Coefficients, *arrays) -> Array:
    slope = jax.grad(lambda flat: _likelihoods(flat.reshape(at.shape), *arrays).sum())
    along = lambda towards: jax.jvp(slope, (at.reshape(-1),), (towards,))[1]  # noqa: E731
    return jax.lax.map(along, jnp.eye(at.size))


def transitions_and_starts(
    at: Coefficients, terms: Float[Array, "profile term"]
) -> tuple[Float[Array, "profile state act state"], Float[Array, "profile state"]]:
    """Transition probabilities and probabilities of the first state, for each profile."""
    n_states = at.shape[0] - 1
    spread = jnp.asarray(contrasts(n_states), jnp.float32)
    parts = at.reshape(*at.shape[:2], -1, terms.shape[1])
    by_action = jnp.concatenate([parts[:, :, :1], parts[:, :, :1] + parts[:, :, 1:]], axis=2)
    logits = jnp.einsum("tk,skax,px->psat", spread, by_action[:-1], terms)
    starts = jnp.einsum("tk,kx,px->pt", spread, by_action[-1, :, 0], terms)
    return jax.nn.softmax(logits), jax.nn.softmax(starts)


def _batch_log_likelihoods(tables, starts, state, action, profile, new) -> Float[Array, "history"]:
    """The log-likelihood of each history of a batch."""
    tables = jnp.swapaxes(tables, 1, 2)
    return jax.vmap(functools.partial(_history_log_likelihood, tables, starts))(
        state, action, profile, new
    )


def _history_log_likelihood(
    tables: Float[Array, "profile act state state"],
    starts: Float[Array, "profile state"],
    state: Int[Array, "round"],
    action: Int[Array, "round"],
    profile: Int[Array, "round"],
    new: Bool[Array, ""],
) -> Float[Array, ""]:
    """The log-likelihood of one history. In a history that does not start with the person's first
    row, the first sighting is conditioned on and does not count."""

    def one_round(carry, now):
        belief, grounded = carry
        seen, table = now
        found = jnp.take(belief, jnp.maximum(seen, 0))
        gained = jnp.where(
            (seen >= 0) & grounded, jnp.log(jnp.maximum(found, LEAST_LIKELIHOOD)), 0.0
        )
        certain = jax.nn.one_hot(seen, belief.shape[0], dtype=belief.dtype)
        known = jnp.where(seen >= 0, certain, belief)
        return (known @ table, grounded | (seen >= 0)), gained

    begin = (starts[profile[0]], new)
    _, gained = jax.lax.scan(one_round, begin, (state, tables[profile, action]))
    return gained.sum()


def log_likelihoods_by_table(
    histories: Histories,
    tables: Float[Array, "table person state act state"],
    person: np.ndarray,
    starts: np.ndarray,
) -> np.ndarray:
    """(table, history): the log-likelihood of each history under several tables of its person.
    `person` (history,) is the position of the person in `tables`."""
    arrays = (histories.state, histories.action, histories.new, person, starts)
    return np.asarray(_by_table(tables, *(jnp.asarray(each) for each in arrays)), float)


@jax.jit
def _by_table(tables, state, action, new, person, starts) -> Array:
    def one_table(table):
        by_action = jnp.swapaxes(table, 1, 2)[person]
        own = lambda table, start, *rest: _history_log_likelihood(table[None], start[None], *rest)  # noqa: E731
        return jax.vmap(own)(by_action, starts, state, action, jnp.zeros_like(state), new)

    return jax.lax.map(one_table, tables)


def predict(histories: Histories, chances: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(history, round, state): the belief before the state of each round is seen, given transition
    probabilities `chances` (profile, state, action, next state) and those of the first state.

    >>> import numpy as np
    >>> from prefermab.programme.logs.histories import Histories
    >>> from prefermab.programme.logs.likelihood import predict
    >>> one = Histories("some", 0.5, "", np.array([0]), np.array([True]),
    ...     np.array([[0, -1, 1]]), np.array([[1, 0, 0]]), np.array([[0, 0, 0]]),
    ...     np.array([3]))
    >>> chances = np.array([[[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.5, 0.5]]]])
    >>> predict(one, chances, np.array([[0.3, 0.7]]))[0].round(3).tolist()
    [[0.3, 0.7], [0.5, 0.5], [0.55, 0.45]]
    """
    belief, found = starts[histories.profile[:, 0]], []
    for now in range(histories.state.shape[1]):
        found.append(belief)
        seen = histories.state[:, now]
        known = np.where(seen[:, None] >= 0, np.eye(belief.shape[1])[seen], belief)
        table = chances[histories.profile[:, now], :, histories.action[:, now]]
        belief = np.einsum("hs,hst->ht", known, table)
    return np.stack(found, axis=1)
