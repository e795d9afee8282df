"""Compares policies in pairs: each meets the same arms, starts, opt-ins and luck.

The spread between draws of arms is larger than the difference between good policies. So each
trial's world is drawn once, from a random stream of its own, and every policy is played in it. What
a policy earns depends on the seed and on itself, not on the policies it is compared with.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array, Bool, Float

from prefermab.arms.amounts import as_single
from prefermab.arms.observation import Arms, TrialKeys, number_of_arms
from prefermab.arms.opt_in import Streaming, schedules
from prefermab.domains.base import Domain
from prefermab.domains.validate import check_once
from prefermab.errors import InputError, amount, count
from prefermab.evaluation.rollout import NotActionsError, Played, draw_world, play, reward_per_arm
from prefermab.oracles.lagrangian import relax
from prefermab.policies.base import Policy, Problem, as_policies

ROUNDS = 9
"""Decisions in a trial: the paper's ten states."""

TABLE_BYTES = 1 << 27
"""Memory for the transition tables of the trials that run at once."""

CACHED_BYTES = 1 << 23
"""Memory for the trials whose bounds a CPU computes at once. It fits the cache: a bound reads every
table hundreds of times."""

Progress = Callable[[float, str], None]
"""Called after each piece of work: with the share of all work that is done, and what was done."""


def evaluate(
    domain: Domain,
    policies: Mapping[str, Any],
    *,
    n_arms: int | None = None,
    budget: float | None = None,
    opt_in: float | Streaming | Sequence[float | Streaming] = 1.0,
    trials: int = 1000,
    seed: int = 0,
    rounds: int = ROUNDS,
    bound: bool | int = True,
    arms: Arms | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Compares policies on the same arms, starts, opt-ins and luck.

    Args:
        domain: Where the arms come from.
        policies: Policies by name: a `Policy`, a `Model`, or a function of an `Observation`.
        n_arms: Number of arms in a trial; by default the paper's for the domain.
        budget: Budget of a round; by default the paper's for the domain.
        opt_in: Share of arms that are opted in, a `Streaming` process, or a sequence of these.
        trials: Number of trials.
        seed: Random seed.
        rounds: Number of decisions in a trial.
        bound: Whether to compute the Lagrangian upper bound, which knows the dynamics. With many
            states that takes long; a number such as 200 computes it for that many trials only.
        arms: Arms to play in every trial; by default each trial draws new ones.
        progress: Called with the share of the work that is done and what was done.

    Returns:
        One row for each policy and opt-in rate, best first. `mean` is the reward of a trial per
        opted-in arm, `sd` its standard deviation over trials, `stderr` its standard error.
        `of_best` is the share of the best policy's mean; `difference` and `difference_stderr` are
        of the paired differences to it. `bound` is the mean bound of the first `bound_trials`
        trials, and `of_bound` the share of it that the policy earns in these; both are null with
        bound=False. `spent` is the mean spending of a round.

    >>> import prefermab as pm
    >>> frame = pm.evaluate(pm.domains.Armman(), {"none": pm.policies.NoAction(),
    ...                     "whittle": pm.policies.Whittle()}, n_arms=25, budget=7, trials=100)
    >>> frame["policy"].to_list()
    ['whittle', 'none']
    """
    check_once(domain)
    players = as_policies(policies, domain)
    n_arms = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    if arms is not None:
        n_arms = number_of_arms(arms)
    money = as_single(amount(domain.usual_budget if budget is None else budget, "budget"))
    keys = trial_keys(count(seed, "seed", at_least=0), count(trials, "trials"))
    rates = [opt_in] if isinstance(opt_in, int | float | Streaming) else list(opt_in)
    if not rates:
        raise InputError("opt_in must name at least one rate.")
    bounded = len(keys) if bound is True else min(count(bound, "bound", at_least=0), len(keys))
    report = _ProgressCounter(progress, (len(players) + (bounded > 0)) * len(rates))
    rows = []
    for rate in rates:
        if arms is not None and isinstance(rate, Streaming):
            raise InputError(
                "opt_in is a Streaming process, in which new arms join: leave arms out."
            )
        batches = trial_batches(domain, n_arms, rate, keys, count(rounds, "rounds"), arms)
        played = _play_all(domain, players, batches, money, len(keys), bounded, report)
        rows += _rows(_label(rate, rates), *played)
    return pl.DataFrame(rows)


def _play_all(
    domain: Domain,
    players: dict[str, Policy],
    batches: "list[Trials]",
    budget: Float[Array, ""],
    n_trials: int,
    bounded: int,
    report: "_ProgressCounter",
) -> tuple[dict[str, np.ndarray], dict[str, float], np.ndarray]:
    """What each policy earns and spends in the trials, and bounds of the first `bounded` ones."""
    bounds, prices = np.zeros(0), [None] * len(batches)
    if bounded:
        first = report.each(_first_batches(batches, bounded), "bound")
        bounds, found = trial_bounds(domain, first, budget, bounded)
        prices = found if bounded == n_trials else prices
    earned, spent = {}, {}
    for name, policy in players.items():
        each = report.each(list(zip(batches, prices, strict=True)), name)
        played = [play_checked(name, policy, domain, batch, budget, price) for batch, price in each]
        earned[name] = _concatenate([reward_per_arm(p) for p in played], n_trials)
        spent[name] = float(_concatenate([p.spent for p in played], n_trials).mean())
    return earned, spent, bounds


class Trials(eqx.Module):
    """Trials before their worlds are drawn: a random key each, who is opted in when, and the arms
    if all trials share them."""

    keys: TrialKeys
    opt_in: Bool[Array, "trial round arm"]
    arms: Arms | None = None


def everyone_in(seed: int, trials: int, n_arms: int, arms: Arms, rounds: int = ROUNDS) -> Trials:
    """Trials of these arms, all of them opted in throughout."""
    return Trials(trial_keys(seed, trials), jnp.ones((trials, rounds, n_arms), bool), arms)


def trial_keys(seed: int, trials: int) -> TrialKeys:
    """One key for each trial, which does not depend on the number of trials."""
    return _fold_in_each(jax.random.key(seed), np.arange(trials))


_fold_in_each = jax.jit(jax.vmap(jax.random.fold_in, in_axes=(None, 0)))


def trial_batches(
    domain: Domain,
    n_arms: int,
    rate: float | Streaming,
    keys: TrialKeys,
    n_rounds: int = ROUNDS,
    arms: Arms | None = None,
    largest: int | None = None,
) -> list[Trials]:
    """Trials in batches of equal size, at most `largest`, whose transition tables fit in memory.
    The last batch is filled up with the first trials."""
    opt_in = schedules(keys, rate, n_arms, n_rounds)
    size = max(1, min(len(keys), TABLE_BYTES // table_bytes(domain, opt_in), largest or len(keys)))
    if size == len(keys):
        return [Trials(keys, opt_in, arms)]
    padded = np.arange(-(-len(keys) // size) * size) % len(keys)
    return [Trials(keys[i], opt_in[i], arms) for i in padded.reshape(-1, size)]


def _first_batches(batches: list[Trials], n_trials: int) -> list[Trials]:
    """The batches that hold the first trials; the first batch is cut if it alone holds more."""
    one = batches[0]
    if n_trials < len(one.keys):
        return [Trials(one.keys[:n_trials], one.opt_in[:n_trials], one.arms)]
    return batches[: -(-n_trials // len(one.keys))]


def table_bytes(domain: Domain, opt_in: Bool[Array, "trial round arm"]) -> int:
    """Size of the transition tables of one trial."""
    return 4 * opt_in.shape[2] * domain.table_size


def worth_bytes(domain: Domain, opt_in: Bool[Array, "trial round arm"]) -> int:
    """Size of the table of what each action is worth, in every cell and round of one trial."""
    return 4 * opt_in.shape[1] * opt_in.shape[2] * domain.n_cells * domain.n_actions


def trial_bounds(
    domain: Domain, batches: Iterable[Trials], budget: Float[Array, ""], n_trials: int
) -> tuple[np.ndarray, list[Float[Array, "trial round"]]]:
    """The bound per opted-in arm of each trial, and the prices of each batch."""
    # Waits for each batch, so that progress is reported when the work is done.
    found = [jax.block_until_ready(_relax_trials(domain, batch, budget)) for batch in batches]
    return _concatenate([bound for bound, _ in found], n_trials), [price for _, price in found]


def trial_rewards(
    policy: Policy,
    domain: Domain,
    batches: Sequence[Trials],
    budget: Float[Array, ""],
    n_trials: int,
    prices: Sequence[Float[Array, "trial round"] | None] | None = None,
) -> np.ndarray:
    """What a policy earns per opted-in arm in each trial."""
    priced = zip(batches, prices or [None] * len(batches), strict=True)
    played = [play_trials(policy, domain, batch, budget, price) for batch, price in priced]
    return _concatenate([reward_per_arm(p) for p in played], n_trials)


def _concatenate(parts: Sequence[Array], n_trials: int) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])[:n_trials]


@eqx.filter_jit
def _relax_trials(
    domain: Domain, trials: Trials, budget: Float[Array, ""]
) -> tuple[Float[Array, "trial"], Float[Array, "trial round"]]:
    def one_trial(trial):
        key, opt_in = trial
        world = draw_world(key, domain, opt_in, trials.arms)
        it = Problem(domain, world.arms, world.start, opt_in, budget)
        start = jax.vmap(domain.cell)(world.start)
        value, prices = relax(it.transitions(), it.rewards(), it.costs(), budget, start, opt_in)
        return value * opt_in.shape[0] / jnp.sum(opt_in), prices

    each = table_bytes(domain, trials.opt_in) + worth_bytes(domain, trials.opt_in)
    fitting = max(1, CACHED_BYTES // each)
    together = fitting if jax.default_backend() == "cpu" else len(trials.keys)
    return jax.lax.map(one_trial, (trials.keys, trials.opt_in), batch_size=together)


@eqx.filter_jit
def play_trials(
    policy: Policy,
    domain: Domain,
    trials: Trials,
    budget: Float[Array, ""],
    prices: Float[Array, "trial round"] | None = None,
) -> Played:
    """Plays a policy in every trial."""

    def one_trial(key, opt_in, price):
        world = draw_world(key, domain, opt_in, trials.arms)
        return play(policy, domain, world, budget, jax.random.fold_in(key, 2), price)

    return jax.vmap(one_trial)(trials.keys, trials.opt_in, prices)


def play_checked(
    name: str,
    policy: Policy,
    domain: Domain,
    trials: Trials,
    budget: Float[Array, ""],
    prices: Float[Array, "trial round"] | None = None,
) -> Played:
    """Plays a policy in every trial; raises an error that names the policy if its actions are not
    allowed."""
    try:
        played = play_trials(policy, domain, trials, budget, prices)
    except NotActionsError as error:
        raise InputError(f"the policy '{name}' {error.why}") from None
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        raise InputError(
            f"the policy '{name}' must use jax.numpy, and jnp.where instead of if or while on "
            "what it observes, because all trials run at once."
        ) from None
    if not played.sound.all():
        raise InputError(f"the policy '{name}' took an action outside 0 to {domain.n_actions - 1}.")
    most = float(played.spent.max())
    if most > float(budget) * (1 + 1e-5):
        raise InputError(f"the policy '{name}' spent {most:g} of a budget of {float(budget):g}.")
    return played


def _rows(
    label: float | str, earned: dict[str, np.ndarray], spent: dict[str, float], bounds: np.ndarray
) -> list[dict[str, Any]]:
    by_mean = sorted(earned, key=lambda name: -earned[name].mean())
    best = by_mean[0]
    mean_bound = float(bounds.mean()) if bounds.size else None
    bounded = mean_bound is not None and mean_bound > 0
    rows = []
    for name in by_mean:
        rewards, best_mean = earned[name], earned[best].mean()
        behind = rewards - earned[best]
        rows.append(
            {
                "policy": name,
                "opt_in": label,
                "mean": rewards.mean(),
                "sd": _spread(rewards),
                "stderr": _spread(rewards) / np.sqrt(rewards.size),
                "of_bound": rewards[: bounds.size].mean() / mean_bound if bounded else None,
                "of_best": rewards.mean() / best_mean if best_mean > 0 else None,
                "difference": behind.mean(),
                "difference_stderr": _spread(behind) / np.sqrt(rewards.size),
                "bound": mean_bound,
                "spent": spent[name],
                "trials": rewards.size,
                "bound_trials": bounds.size,
            }
        )
    return rows


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if values.size > 1 else 0.0


def _label(rate: float | Streaming, rates: Sequence[float | Streaming]) -> float | str:
    """A number, or text if any of the rates is a stream, because a column has one type."""
    if not any(isinstance(other, Streaming) for other in rates):
        return float(rate)  # pyright: ignore[reportArgumentType]
    if isinstance(rate, Streaming):
        return f"stay {rate.stay:g}, {rate.newcomers:g} join"
    return f"{rate:g}"


class _ProgressCounter:
    """Reports which share of all runs is done, batch by batch."""

    def __init__(self, progress: Progress | None, runs: int):
        self.progress, self.runs, self.done = progress, runs, 0.0

    def each(self, batches: Sequence[Any], what: str):
        """Yields the batches of one run, and reports after each."""
        for batch in batches:
            yield batch
            self.done += 1 / len(batches)
            if self.progress is not None:
                self.progress(self.done / self.runs, what)
