"""A programme that runs for many rounds: people join and leave, states move, policies decide.

Every trial is a programme of its own, and every policy meets the same people, comings and goings
and luck. What is followed is how those who are in fare, round by round, what is spent, and how
many different people were ever acted on.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from prefermab.arms import Actions, Key, Observation
from prefermab.budget import greedy
from prefermab.domains.base import Domain
from prefermab.domains.validate import check_once
from prefermab.errors import InputError, count, number
from prefermab.evaluation import Trials, play_checked, trial_batches, trial_keys
from prefermab.opt_in import Streaming
from prefermab.policies import NoAction, Policy, RoundRobin
from prefermab.policies.base import as_policies

ROUNDS, TRIALS, PIECES = 52, 200, 10
Series = dict[str, np.ndarray]
"""What was measured of a policy, each (trial, round)."""


def simulate(
    model: Any = None,
    domain: Domain | None = None,
    policies: Mapping[str, Any] | None = None,
    n_arms: int | None = None,
    budget: float | None = None,
    rounds: int = ROUNDS,
    process: Streaming | float | None = None,
    seed: int = 0,
    trials: int = TRIALS,
    *,
    watch: Callable[["Tally"], object] | None = None,
) -> pl.DataFrame:
    """One row for each round and policy: how a programme of `n_arms` places goes on.

    `model` is played as the policy `prefermab`, on its own domain unless another is given, beside
    `policies`: by default no action, whoever comes first at random, and taking turns. `process`
    says who joins and leaves: `Streaming(stay=0.9, newcomers=3)` if left out, or a share that
    stays in throughout. Means are over trials, each with its standard error:

    - `opted_in`: people who are in; `joined`: all who ever were, so far;
    - `engagement`: reward of the round per person who is in; `difference` is the paired one to the
      policy that is best over all rounds;
    - `spent`: of the budget in this round;
    - `reached`: different people acted on so far; `reached_share`: their share of all who joined.

    `watch` is shown what there is after each piece of the trials.

    >>> import prefermab as pm
    >>> frame = pm.simulate(domain=pm.domains.Armman(), rounds=5, trials=20)
    >>> frame.filter(frame["policy"] == "none")["reached"].to_list()
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    tally = None
    for tally in programmes(model, domain, policies, n_arms, budget, rounds, process, seed, trials):
        if watch is not None:
            watch(tally)
    assert tally is not None
    return tally.frame()


def programmes(
    model: Any,
    domain: Domain | None,
    policies: Mapping[str, Any] | None,
    n_arms: int | None,
    budget: float | None,
    rounds: int,
    process: Streaming | float | None,
    seed: int,
    trials: int,
) -> Iterator["Tally"]:
    """What there is after each piece of the trials; the last has them all."""
    domain = getattr(model, "domain", None) if domain is None else domain
    if not isinstance(domain, Domain):
        raise InputError("domain must be a Domain such as Armman(), or that of a model.")
    check_once(domain)
    given = as_policies(usual_policies() if policies is None else policies, domain, at_least=0)
    players = ({} if model is None else as_policies({"prefermab": model}, domain)) | given
    if not players:
        raise InputError("there is nothing to simulate: give a model or policies.")
    places = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    money = jnp.asarray(number(domain.usual_budget if budget is None else budget, "budget"))
    n_trials = count(trials, "trials")
    keys = trial_keys(count(seed, "seed", at_least=0), n_trials)
    stream = Streaming(stay=0.9, newcomers=3.0) if process is None else process
    batches = trial_batches(
        domain, places, stream, keys, count(rounds, "rounds"), largest=-(-n_trials // PIECES)
    )
    tally = Tally(n_trials, {})
    for batch in batches:
        more = {
            name: measured(name, policy, domain, batch, money) for name, policy in players.items()
        }
        tally = tally.with_trials(more)
        yield tally


def usual_policies() -> dict[str, Any]:
    """What a model is compared with: none of it knows anybody's dynamics."""
    return {"none": NoAction(), "random": at_random, "round-robin": RoundRobin()}


def at_random(seen: Observation, key: Key) -> Actions:
    """Whoever is in, in random order, as far as the budget goes.

    `policies.Random` visits those who are out as well, as in the paper; where most of the people
    who ever join are out at any time, it would spend next to nothing.
    """
    return greedy(jax.random.uniform(key, seen.costs.shape), seen.costs, seen.budget, seen.opt_in)


def measured(name: str, policy: Policy, domain: Domain, trials: Trials, budget: Any) -> Series:
    """Plays a policy in every trial."""
    played = play_checked(name, policy, domain, trials, budget, None)
    ever_in = np.maximum.accumulate(np.asarray(trials.opt_in), axis=1)
    opted_in, joined = np.asarray(played.opted_in, float), ever_in.sum(axis=2).astype(float)
    reached = np.asarray(played.reached, float)
    with np.errstate(invalid="ignore", divide="ignore"):
        engagement = np.asarray(played.reward, float) / opted_in
    return {
        "opted_in": opted_in,
        "joined": joined,
        "engagement": np.where(opted_in > 0, engagement, np.nan),
        "spent": np.asarray(played.spent, float),
        "reached": reached,
        "reached_share": reached / joined,
    }


@dataclasses.dataclass(frozen=True)
class Tally:
    """What was measured so far, of `wanted` trials in all."""

    wanted: int
    found: dict[str, Series]

    @property
    def trials(self) -> int:
        """How many trials were played."""
        return next((len(series["spent"]) for series in self.found.values()), 0)

    def with_trials(self, more: dict[str, Series]) -> "Tally":
        """More trials; those beyond what is wanted only fill a batch up."""
        joined = {
            name: {
                what: np.concatenate([*self._before(name, what), values])[: self.wanted]
                for what, values in series.items()
            }
            for name, series in more.items()
        }
        return Tally(self.wanted, joined)

    def _before(self, name: str, what: str) -> list[np.ndarray]:
        return [self.found[name][what]] if name in self.found else []

    @property
    def best(self) -> str:
        """The policy with the highest engagement over all rounds."""
        return max(self.found, key=lambda name: np.nanmean(self.found[name]["engagement"]))

    def frame(self) -> pl.DataFrame:
        """A row for each round and policy."""
        ahead = self.found[self.best]["engagement"]
        frames = []
        for name, series in self.found.items():
            columns = {
                "opted_in": series["opted_in"].mean(axis=0),
                "joined": series["joined"].mean(axis=0),
            }
            for what in ("engagement", "spent", "reached", "reached_share"):
                columns |= _mean(what, series[what])
            columns |= _mean("difference", series["engagement"] - ahead)
            rounds = np.arange(1, len(columns["spent"]) + 1)
            frames.append(
                pl.DataFrame({"round": rounds, **columns})
                .insert_column(1, pl.lit(name).alias("policy"))
                .with_columns(pl.lit(self.trials).alias("trials"))
            )
        return pl.concat(frames).sort("round", maintain_order=True).fill_nan(None)

    def summary(self) -> pl.DataFrame:
        """A row for each policy over all rounds, best first: engagement a round, the paired
        difference to the best, spending a round, and whom it reached in the end."""
        best = np.nanmean(self.found[self.best]["engagement"], axis=1)
        rows = []
        for name, series in self.found.items():
            own = np.nanmean(series["engagement"], axis=1)
            row = {"policy": name, "opted_in": float(series["opted_in"].mean())}
            for what, values in (
                ("engagement", own),
                ("difference", own - best),
                ("spent", series["spent"].mean(axis=1)),
                ("joined", series["joined"][:, -1]),
                ("reached", series["reached"][:, -1]),
                ("reached_share", series["reached_share"][:, -1]),
            ):
                row |= {key: float(value[0]) for key, value in _mean(what, values[:, None]).items()}
            rows.append({**row, "trials": self.trials})
        return pl.DataFrame(rows).sort("engagement", descending=True, maintain_order=True)


def _mean(what: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Means over trials and their standard errors; a round in which nobody is in does not count."""
    n = np.maximum((~np.isnan(values)).sum(axis=0), 1)
    mean = np.nansum(values, axis=0) / n
    spread = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(n - 1, 1))
    empty = np.isnan(values).all(axis=0)
    return {
        what: np.where(empty, np.nan, mean),
        f"{what}_stderr": np.where(empty, np.nan, spread / np.sqrt(n)),
    }
