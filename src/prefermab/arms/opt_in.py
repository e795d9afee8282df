"""Opt-in processes: who is in the programme in each round, the paper's vector ξ.

There are three. `fixed_share` opts a random share in for a whole trial (how the paper evaluates),
`Redrawn` flips a coin for each place (how it trains), and `Streaming` lets people leave and
newcomers ask to join a programme of limited capacity (Algorithm 1, lines 5 to 10).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from prefermab.arms.observation import Key, OptIn, TrialKeys
from prefermab.errors import InputError, count, number, share


def opted_in_count(rate: float, n_arms: int) -> int:
    """How many of `n_arms` are in at opt-in rate `rate`: round(rate · N), halves to even.

    >>> from prefermab import opt_in
    >>> opt_in.opted_in_count(0.9, 25)
    22
    """
    return round(share(rate, "opt_in") * n_arms)


def fixed_share(key: Key, n_arms: int, opted_in: int | Int[Array, ""]) -> OptIn:
    """Opts in exactly `opted_in` of `n_arms` arms, uniformly at random.

    >>> import jax
    >>> from prefermab import opt_in
    >>> int(opt_in.fixed_share(jax.random.key(0), 21, 17).sum())
    17
    """
    return jax.random.permutation(key, n_arms) < opted_in


def redraw(key: Key, n_arms: int, rate: float) -> OptIn:
    """Opts in each arm with probability `rate`, independently, as the paper does in training.

    >>> import jax
    >>> from prefermab import opt_in
    >>> opt_in.redraw(jax.random.key(0), 5, 1.0)
    Array([ True,  True,  True,  True,  True], dtype=bool)
    """
    return jax.random.bernoulli(key, rate, (n_arms,))


class Redrawn(eqx.Module):
    """Each of N places is requested with probability `rate`, whoever held it before. So there are
    never more requests than places. If there are none, everyone is in."""

    rate: float = 0.8

    def requests(self, key: Key, opt_in: OptIn) -> tuple[OptIn, Bool[Array, "arm"]]:
        """Which of the places are taken next, and which of these by newcomers."""
        drawn = redraw(key, opt_in.shape[0], self.rate)
        drawn = jnp.where(jnp.any(drawn), drawn, True)
        return drawn, drawn & ~opt_in


class Streaming(eqx.Module):
    """A programme with a limited number of places: in each round some people leave and newcomers
    ask to join (Algorithm 1, lines 5 to 10).

    People who are in ask first, then newcomers. The first N requests are accepted; places without
    a person are dummies.

    Args:
        stay: Probability that a person who is in asks to stay.
        newcomers: Mean of the Poisson number of newcomers who ask in a round.

    >>> import jax
    >>> import prefermab as pm
    >>> process = pm.opt_in.Streaming(stay=0.9, newcomers=3.0)
    >>> schedule = process.schedule(jax.random.key(0), n_arms=10, n_rounds=4)
    >>> schedule.shape[0], bool((schedule.sum(axis=1) <= 10).all())
    (4, True)
    """

    stay: float = 0.9
    newcomers: float = 2.0

    def __check_init__(self) -> None:
        share(self.stay, "stay")
        number(self.newcomers, "newcomers")

    def requests(self, key: Key, opt_in: OptIn) -> tuple[OptIn, Bool[Array, "arm"]]:
        """One round: which of the N places are taken next, and which of these by newcomers."""
        key_stay, key_new = jax.random.split(key)
        stays = opt_in & jax.random.bernoulli(key_stay, self.stay, opt_in.shape)
        asking = jax.random.poisson(key_new, self.newcomers)
        free = ~stays
        joins = free & (jnp.cumsum(free) <= asking)
        return stays | joins, joins

    def occupants(self, key: Key, n_arms: int, n_rounds: int) -> Int[Array, "round arm"]:
        """Which person holds each place in each round, -1 for nobody; people are numbered in the
        order in which they joined."""
        everyone = jnp.arange(n_arms)

        def one_round(carry, key_round):
            occupant, known = carry
            opt_in, joins = self.requests(key_round, occupant >= 0)
            newcomer = known + jnp.cumsum(joins) - 1
            occupant = jnp.where(joins, newcomer, jnp.where(opt_in, occupant, -1))
            return (occupant, known + jnp.sum(joins)), occupant

        keys = jax.random.split(key, n_rounds - 1)
        _, later = jax.lax.scan(one_round, (everyone, jnp.asarray(n_arms)), keys)
        return jnp.concatenate([everyone[None], later])

    def schedule(
        self, key: Key, n_arms: int, n_rounds: int, n_people: int | None = None
    ) -> Bool[Array, "round person"]:
        """ξ for everyone who ever joins: true in the rounds in which they hold a place.

        Args:
            key: Random key.
            n_arms: Number of places.
            n_rounds: Number of rounds.
            n_people: Number of people to return, at least all who join; by default these.

        Returns:
            True or False for each round and person.
        """
        places = self.occupants(key, count(n_arms, "n_arms"), count(n_rounds, "n_rounds"))
        joined = int(places.max()) + 1
        people = joined if n_people is None else n_people
        if people < joined:
            raise InputError(f"n_people is {people}, but {joined} people joined.")
        return holds_place(places, people)


def holds_place(places: Int[Array, "round arm"], n_people: int) -> Bool[Array, "round person"]:
    """Whether each person holds a place in each round."""
    rounds = jnp.arange(places.shape[0])[:, None]
    nobody = jnp.where(places < 0, n_people, places)
    return jnp.zeros((places.shape[0], n_people), bool).at[rounds, nobody].set(True, mode="drop")


def joins(opt_in: Bool[Array, "round arm"]) -> Bool[Array, "round arm"]:
    """Where an arm joins: it is in, and was not in the round before."""
    return opt_in & ~jnp.pad(opt_in, ((1, 0), (0, 0)))[:-1]


def opt_in_key(key: Key) -> Key:
    """The random stream that decides who is in a trial; its world uses `key` itself."""
    return jax.random.fold_in(key, 1)


def schedules(
    keys: TrialKeys, rate: float | Streaming, n_arms: int, n_rounds: int
) -> Bool[Array, "trial round arm"]:
    """ξ of every trial: a random share that is in throughout, or a stream of people.

    Args:
        keys: A random key for each trial.
        rate: Share of arms that are in, or a `Streaming` process.
        n_arms: Number of arms, or of places in a stream.
        n_rounds: Number of rounds.

    Returns:
        True or False for each trial, round and arm; in a stream, for everyone who ever joins.

    >>> import jax
    >>> from prefermab import opt_in
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> opt_in.schedules(keys, 0.8, n_arms=10, n_rounds=4).sum(axis=2)[0]
    Array([8, 8, 8, 8], dtype=int32)
    """
    if isinstance(rate, Streaming):
        places = _places(keys, rate, n_arms, n_rounds)
        return _presence(places, int(places.max()) + 1)
    opted_in = opted_in_count(rate, n_arms)
    if opted_in == 0:
        raise InputError(f"at opt_in {rate:g} none of {n_arms} arms is in: nothing to evaluate.")
    return _shares(keys, jnp.asarray(opted_in), n_arms, n_rounds)


@eqx.filter_jit
def _shares(
    keys: TrialKeys, opted_in: Int[Array, ""], n_arms: int, n_rounds: int
) -> Bool[Array, "trial round arm"]:
    shares = jax.vmap(lambda key: fixed_share(opt_in_key(key), n_arms, opted_in))(keys)
    return jnp.broadcast_to(shares[:, None], (len(keys), n_rounds, n_arms))


@eqx.filter_jit
def _places(
    keys: TrialKeys, rate: Streaming, n_arms: int, n_rounds: int
) -> Int[Array, "trial round place"]:
    return jax.vmap(lambda key: rate.occupants(opt_in_key(key), n_arms, n_rounds))(keys)


@eqx.filter_jit
def _presence(
    places: Int[Array, "trial round place"], people: int
) -> Bool[Array, "trial round arm"]:
    return jax.vmap(lambda held: holds_place(held, people))(places)
