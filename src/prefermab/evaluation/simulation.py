"""Simulation of programmes: people join and leave, states change, policies decide.

Every trial is one programme of many rounds. All policies meet the same people, who join and leave
at the same times, with common random numbers.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import polars as pl

from prefermab.arms.amounts import as_single
from prefermab.arms.opt_in import Streaming
from prefermab.domains.base import Domain
from prefermab.domains.validate import check_once
from prefermab.errors import InputError, amount, count
from prefermab.evaluation.compare import Progress, Trials, play_checked, trial_batches, trial_keys
from prefermab.policies import Lottery, NoAction, Policy, RoundRobin
from prefermab.policies.base import as_policies

SIMULATED_ROUNDS, SIMULATED_TRIALS, TRIAL_BATCHES = 52, 200, 10
Series = dict[str, np.ndarray]
"""The measurements of a policy by name, each (trial, round)."""


def simulate(
    model: Any = None,
    domain: Domain | None = None,
    *,
    policies: Mapping[str, Any] | None = None,
    n_arms: int | None = None,
    budget: float | None = None,
    rounds: int = SIMULATED_ROUNDS,
    opt_in: Streaming | float | None = None,
    trials: int = SIMULATED_TRIALS,
    seed: int = 0,
    progress: Progress | None = None,
    watch: Callable[["Tally"], object] | None = None,
    process: Streaming | float | None = None,
) -> pl.DataFrame:
    """Simulates a programme over many rounds, once for each trial and policy.

    Args:
        model: A model, played as the policy `prefermab`; None to play only `policies`.
        domain: The domain to simulate; the model's own domain if None.
        policies: Other policies by name; no action, a lottery and round-robin if None.
        n_arms: Number of places in the programme; the domain's usual number if None.
        budget: Budget of each round; the domain's usual one if None.
        rounds: Number of rounds.
        opt_in: How people join and leave, `Streaming(stay=0.9, newcomers=3)` if None; or a number:
            the share of people who are in, from the first round to the last.
        trials: Number of programmes.
        seed: Random seed.
        progress: Called with the share of trials done and a text, after each batch of trials.
        watch: Called with the results so far, after each batch of trials.
        process: The old name of `opt_in`, from version 0.1.

    Returns:
        A row for each round and policy, with means over trials and their standard errors:
        `opted_in` is the number of people who are in, `joined` the number who joined so far;
        `engagement` is the reward of the round per person who is in, `difference` its paired
        difference to the policy that is best over all rounds; `spent` is the cost of the round;
        `reached` is the number of people acted on so far, `reached_share` their share of `joined`.

    >>> import prefermab as pm
    >>> nobody = {"none": pm.policies.NoAction()}
    >>> frame = pm.simulate(domain=pm.domains.Armman(), policies=nobody, rounds=3, trials=2)
    >>> frame["reached"].to_list()
    [0.0, 0.0, 0.0]
    """
    tally = None
    for tally in simulate_batches(
        model, domain, policies=policies, n_arms=n_arms, budget=budget, rounds=rounds,
        opt_in=process if opt_in is None else opt_in, trials=trials, seed=seed,
    ):  # fmt: skip
        if progress is not None:
            progress(tally.trials / tally.wanted, f"{tally.trials} of {tally.wanted} programmes")
        if watch is not None:
            watch(tally)
    assert tally is not None
    return tally.frame()


def simulate_batches(
    model: Any,
    domain: Domain | None,
    *,
    policies: Mapping[str, Any] | None,
    n_arms: int | None,
    budget: float | None,
    rounds: int,
    opt_in: Streaming | float | None,
    trials: int,
    seed: int,
) -> Iterator["Tally"]:
    """Yields the results so far after each batch of trials; the last have all trials."""
    domain = check_once(getattr(model, "domain", None) if domain is None else domain)
    given = as_policies(usual_policies() if policies is None else policies, domain, at_least=0)
    players = ({} if model is None else as_policies({"prefermab": model}, domain)) | given
    if not players:
        raise InputError("there is nothing to simulate: give a model or policies.")
    places = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    money = as_single(amount(domain.usual_budget if budget is None else budget, "budget"))
    n_trials = count(trials, "trials")
    keys = trial_keys(count(seed, "seed", at_least=0), n_trials)
    stream = Streaming(stay=0.9, newcomers=3.0) if opt_in is None else opt_in
    batches = trial_batches(
        domain, places, stream, keys, count(rounds, "rounds"), largest=-(-n_trials // TRIAL_BATCHES)
    )
    tally = Tally(n_trials, {})
    for batch in batches:
        more = {
            name: play_programmes(name, policy, domain, batch, money)
            for name, policy in players.items()
        }
        tally = tally.with_trials(more)
        yield tally


def usual_policies() -> dict[str, Policy]:
    """The policies that a model is compared with; none of them knows the dynamics."""
    return {"none": NoAction(), "lottery": Lottery(), "round-robin": RoundRobin()}


def play_programmes(
    name: str, policy: Policy, domain: Domain, trials: Trials, budget: jax.Array
) -> Series:
    """Plays a policy in every trial, and returns its measurements of every round."""
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
    """The results so far of a simulation with `wanted` trials."""

    wanted: int
    found: dict[str, Series]

    @property
    def trials(self) -> int:
        """The number of trials so far."""
        return next((len(series["spent"]) for series in self.found.values()), 0)

    def with_trials(self, more: dict[str, Series]) -> "Tally":
        """The results with more trials; the last batch may have trials beyond `wanted`, which are
        dropped."""
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
        """A row for each policy, best first: engagement and spending per round, the paired
        difference to the best policy, and the people reached by the last round."""
        highest = np.nanmean(self.found[self.best]["engagement"], axis=1)
        rows = []
        for name, series in self.found.items():
            engagement = np.nanmean(series["engagement"], axis=1)
            row = {"policy": name, "opted_in": float(series["opted_in"].mean())}
            for what, values in (
                ("engagement", engagement),
                ("difference", engagement - highest),
                ("spent", series["spent"].mean(axis=1)),
                ("joined", series["joined"][:, -1]),
                ("reached", series["reached"][:, -1]),
                ("reached_share", series["reached_share"][:, -1]),
            ):
                row |= {key: float(value[0]) for key, value in _mean(what, values[:, None]).items()}
            rows.append({**row, "trials": self.trials})
        return pl.DataFrame(rows).sort("engagement", descending=True, maintain_order=True)


def _mean(what: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Means over trials and their standard errors; rounds without people do not count."""
    n = np.maximum((~np.isnan(values)).sum(axis=0), 1)
    mean = np.nansum(values, axis=0) / n
    spread = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(n - 1, 1))
    empty = np.isnan(values).all(axis=0)
    return {
        what: np.where(empty, np.nan, mean),
        f"{what}_stderr": np.where(empty, np.nan, spread / np.sqrt(n)),
    }
