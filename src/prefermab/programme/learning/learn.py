"""`prefermab.learn`: learns a model from a log, and estimates its gain."""

import dataclasses
import functools
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prefermab.common.intervals import Interval
from prefermab.common.pages import write_pages
from prefermab.domains import Domain, Unseen
from prefermab.errors import InputError, amount, count
from prefermab.evaluation.compare import Progress
from prefermab.models.model import Model
from prefermab.programme.evidence.logged import judge_learned_rule
from prefermab.programme.evidence.results import OffPolicy
from prefermab.programme.learning.effects import Effects, estimate_effects
from prefermab.programme.learning.holdout import HeldOut, features_verdict, hold_out
from prefermab.programme.learning.report import report_blocks
from prefermab.programme.learning.summary import first_page
from prefermab.programme.learning.unseen_report import (
    assess_unseen,
    first_page_unseen,
    report_unseen,
)
from prefermab.programme.learning.verdict import Assessment, Verdict, assess, default_rounds
from prefermab.programme.learning.visits import Visits, check_visits
from prefermab.programme.logs.domain import Logged
from prefermab.programme.logs.fitting import Fit, fit_log
from prefermab.programme.logs.hidden import fit_hidden
from prefermab.programme.logs.histories import Histories
from prefermab.programme.logs.log_warnings import LogWarning, log_warnings
from prefermab.programme.logs.reading import Log, read_log
from prefermab.training.pretraining import pretrain


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LearnResult:
    """What `prefermab.learn` returns: the model, and what the log shows about it.

    `effects` has tables of transition probabilities and of the effects of actions. `held_out` has
    the prediction errors on parts of the log that were held out. `assessment` has the gain, the
    placebo test, the comparison of people who were acted on with the others, and the warnings.
    """

    model: Model
    log: Log
    fit: Fit
    effects: Effects
    held_out: list[HeldOut]
    assessment: Assessment
    off_policy: OffPolicy | None = None
    """Off-policy estimates from the probabilities of the log; None where it has none."""
    visits: Visits | None = None
    """Checks of predicted sightings; None where states are always seen."""

    @property
    def verdict(self) -> Verdict:
        """Whether a gain is shown: `shown`, `not shown` or `cannot tell`."""
        return self.assessment.verdict

    @property
    def gain(self) -> Interval | None:
        """The gain in reward per person over what was done before, with `estimate`, `low` and
        `high`; None where there are too few people to measure it."""
        comparison = self.assessment.comparison
        return None if comparison is None else comparison.gain

    @property
    def warnings(self) -> tuple[LogWarning, ...]:
        """Warnings, each with `code`, `sentence` and `spoils`."""
        return self.assessment.warnings

    @property
    def summary(self) -> list[str]:
        """The paragraphs of the first page of the report."""
        if self.visits is not None:
            return first_page_unseen(self.log, self.fit, self.visits, self.assessment)
        return first_page(
            self.log, self.fit, self.effects.groups, self.assessment, self.model.budget
        )

    def __repr__(self) -> str:
        gain = self.gain
        shown = "None" if gain is None else f"{gain.estimate:.3g} ({gain.low:.3g}, {gain.high:.3g})"
        return f"LearnResult(verdict={self.verdict!r}, gain={shown}, warnings={len(self.warnings)})"

    def report(self, path: str | Path) -> None:
        """Writes the report.

        Args:
            path: Folder for index.html (a single page that opens without a server), README.md
                with the same content, and learned.json with all figures.
        """
        found = (self.summary, self.log, self.fit, self.effects)
        if self.visits is not None:
            blocks = report_unseen(*found, self.visits)
        else:
            blocks = report_blocks(*found, self.held_out, self.assessment, self.off_policy)
        data = json.dumps(self.as_data(), indent=1)
        write_pages(Path(path), f"Learned from {self.log.where}", blocks, {"learned.json": data})

    def as_data(self) -> dict[str, Any]:
        """Everything in the report, as JSON values.

        Returns:
            The same as `prefermab learn --json` prints, without the paths.
        """
        model, effects, labels = self.model, self.effects, self.log.labels
        allocation = self.assessment.allocation
        return {
            "summary": self.summary,
            "verdict": self.verdict,
            **_gain_data(self.assessment),
            "warnings": [
                {"code": w.code, "sentence": w.sentence, "spoils": w.spoils} for w in self.warnings
            ],
            "off_policy": None if self.off_policy is None else self.off_policy.as_data(),
            "seen": _seen_data(self.log, self.visits),
            "found": dataclasses.asdict(self.log.found),
            "states": list(model.state_names),
            "actions": list(model.action_names),
            "features": list(model.feature_names),
            "costs": labels.costs.tolist(),
            "rewards": labels.rewards.tolist(),
            "n_arms": model.n_arms,
            "budget": model.budget,
            "spent": self.log.spent,
            "earned": self.log.earned,
            "acting_matters": self.fit.effect_probability,
            "balance": [] if allocation is None else allocation.balance.to_dicts(),
            "transitions": effects.transitions.to_dicts(),
            "effects": effects.effects.to_dicts(),
            "groups": effects.groups.to_dicts(),
            "held_out": [
                {
                    "held": each.held,
                    "losses": each.losses.to_dicts(),
                    "calibration": each.calibration.to_dicts(),
                    "verdict": features_verdict(each),
                }
                for each in self.held_out
            ],
        }


def learn(
    log: Any,
    *,
    id: str = "id",
    time: str = "time",
    state: str = "state",
    action: str = "action",
    features: Sequence[str] | None = None,
    costs: Mapping[Any, Any] | Sequence[Any] | None = None,
    rewards: Mapping[Any, Any] | None = None,
    passive: Any = None,
    available: str | None = None,
    reached: str | None = None,
    probability: str | None = None,
    every: Any = None,
    seen: str | None = None,
    n_arms: int | None = None,
    budget: float | None = None,
    rounds: int | None = None,
    steps: int = 6000,
    rounds_left: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> LearnResult:
    """Learns a model from a log of past rounds, and estimates what it gains over what was done.

    Each warning about the log is also given as a Python warning (`LogWarning`) before the work
    begins.

    Args:
        log: A polars or pandas frame, or a CSV or Parquet file, with one row for each person and
            round.
        id: Column with the id of the person.
        time: Column of whole numbers or dates.
        state: Column of the person's state in that round.
        action: Column of the action in that round; the state that follows is in the next row.
        features: Columns that describe people. All other columns if left out; none if empty.
        costs: The cost of each action, by action or in the order of their names; the one that costs
            0 is the passive one. Left out, `passive` (or the action 0) costs 0 and the others 1.
        rewards: The reward of each state.
        passive: The action that means doing nothing; not needed if `costs` has one cost of 0.
        available: Column of true and false: whether the person could be acted on. If left out, a
            column of this name is used if there is one.
        reached: Column of true and false: whether the action reached the person. If left out, a
            column of this name is used if there is one.
        probability: Column of the probability with which each row got its action. If left out, a
            column of this name is used if there is one.
        every: Length of a round, such as `7d`, `2w`, `1m` or a number; the most common time between
            two rows of a person if left out.
        seen: When states are seen: `always`; `acted`, only when the person is acted on; or `some`,
            in some rounds, whatever the action is. If left out, it is found from the log: `always`
            if at most 5 % of its states are empty. With `acted` and `some` the model decides by the
            state last seen and the rounds since, and no gain is estimated.
        n_arms: Number of arms that the model decides about; people in a round of the log if left
            out.
        budget: What may be spent in each round; the mean cost of a round of the log if left out.
        rounds: Rounds over which the gain is summed; half as many as the log has, at most 12, if
            left out.
        steps: Training steps; fewer steps give a less accurate model sooner.
        rounds_left: The largest number of remaining rounds that plans may give, for a programme
            that ends; training takes longer with it.
        seed: Random seed; the same seed gives the same model.
        progress: Called with the share that is done, from 0 to 1, and a text that says what is
            being done.

    Returns:
        A `LearnResult` with `model`, `gain`, `verdict`, `warnings` and `report(path)`.

    Example::

        result = pm.learn("log.csv", rewards={"engaged": 1, "silent": 0}, passive="none")
        print(result.verdict, result.gain)
        result.model.save("runs/mine")
        result.report("runs/mine/report")
    """
    read = read_log(
        log, id=id, time=time, state=state, action=action, features=features, costs=costs,
        rewards=rewards, passive=passive, available=available, reached=reached,
        probability=probability, every=every, seen=seen,
    )  # fmt: skip
    _check_budget(read, budget)
    ahead = count(rounds_left, "rounds_left", at_least=0)
    if ahead and read.histories is not None:
        raise InputError("rounds_left is for logs whose states are always seen: leave it out.")
    rounds = default_rounds(read) if rounds is None else count(rounds, "rounds")
    for warning in log_warnings(read):
        warnings.warn(warning, stacklevel=2)
    train = functools.partial(
        pretrain, n_arms=n_arms, budget=budget, seed=seed, progress=progress, steps=steps,
        rounds_left=ahead,
    )  # fmt: skip
    if read.histories is not None:
        result = _learn_unseen(read, read.histories, seed, train)
    else:
        result = _learn_seen(read, seed, rounds, train, progress)
    return dataclasses.replace(result, model=dataclasses.replace(result.model, card=_card(result)))


def _learn_seen(
    log: Log, seed: int, rounds: int, train: Callable[[Domain], Model], progress: Progress | None
) -> LearnResult:
    fit = fit_log(log, seed=seed)
    held_out = hold_out(log, seed=seed)
    model = train(Logged(log, fit, seed))
    assessment = assess(log, fit, model.budget / model.n_arms, rounds, seed, progress)
    effects = estimate_effects(log, fit)
    off_policy = judge_learned_rule(log, model.budget / model.n_arms, seed=seed)
    return LearnResult(model, log, fit, effects, held_out, assessment, off_policy)


def _learn_unseen(
    log: Log, histories: Histories, seed: int, train: Callable[[Domain], Model]
) -> LearnResult:
    """Learns from a log in which most states are empty: the model decides by the state last seen
    and the rounds since."""
    fit = fit_hidden(log, seed=seed)
    visits = check_visits(log, fit, seed)
    for warning in visits.warnings:
        warnings.warn(warning, stacklevel=3)
    model = train(Unseen(Logged(log, fit, seed), histories.way, histories.chance))
    effects, assessment = estimate_effects(log, fit), assess_unseen(log, visits)
    return LearnResult(model, log, fit, effects, [], assessment, visits=visits)


def _check_budget(log: Log, budget: float | None) -> None:
    """Raises an error if the budget pays for no action."""
    costs, actions = log.labels.costs[1:], log.labels.actions[1:]
    cheapest = costs.argmin()
    what = "the budget" if budget is not None else "what a round of the log cost"
    limit = log.spent if budget is None else amount(budget, "budget")
    if limit < costs[cheapest]:
        raise InputError(
            f"{what}, {limit:g}, is below the cost of the cheapest action, '{actions[cheapest]}' "
            f"at {costs[cheapest]:g}: nothing can be decided; give a larger budget."
        )


def _card(result: LearnResult) -> str:
    """The text of the model's card."""
    model = result.model
    return (
        f"# Learned from {result.log.where}, recipe `{model.recipe}`\n\n"
        f"States {', '.join(model.state_names)}; actions {', '.join(model.action_names)}; "
        f"features {', '.join(model.feature_names) or 'none'}.\n\n"
        + "\n\n".join(result.summary)
        + "\n"
    )


def _seen_data(log: Log, visits: Visits | None) -> dict[str, Any]:
    """How states are seen, and the checks of predicted sightings, as JSON values."""
    if log.histories is None or visits is None:
        return {"way": "always"}
    predicted = visits.predicted
    return {
        "way": log.histories.way,
        "why": log.histories.why,
        "chance": log.histories.chance,
        "held_back": visits.people,
        "predicted": None if predicted is None else predicted.to_dicts(),
        "apart": visits.apart.to_dicts(),
    }


def _gain_data(assessment: Assessment) -> dict[str, Any]:
    """The gain and the placebo as JSON values; None where nothing could be measured."""
    comparison = assessment.comparison
    if comparison is None:
        return dict.fromkeys(("gain", "placebo", "rounds", "noticed", "hidden_cause", "compared"))
    parts = lambda gain: {"estimate": gain.estimate, "low": gain.low, "high": gain.high}  # noqa: E731
    each = [parts(gain) for gain in assessment.placebo]
    return {
        "gain": parts(comparison.gain),
        "placebo": {
            **{name: float(np.mean([one[name] for one in each])) for name in each[0]},
            "shuffles": len(each),
            "shown": sum(gain.shown for gain in assessment.placebo),
            "estimates": [one["estimate"] for one in each],
        },
        "rounds": comparison.rounds,
        "noticed": comparison.detectable,
        "hidden_cause": comparison.hidden_cause,
        "compared": [
            {"policy": name, "earned": comparison.earned[name], "gain": parts(gain)}
            for name, gain in comparison.gains.items()
        ],
    }
