"""Results of off-policy evaluation, and the base class that they share with results of trials: a
result can be printed as sentences, returned as figures, and written as a page."""

import dataclasses
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from prefermab.common.intervals import STANDARD_ERRORS, Interval
from prefermab.common.pages import Block, Cell, Grid, Heading, Text, write_pages
from prefermab.errors import InputError
from prefermab.programme.evidence.weights import (
    Episodes,
    Support,
    judge_support,
    logged_value,
    method_intervals,
    row_episodes,
)

NOTABLE_DIFFERENCE = 0.25
"""Standardised mean difference above which the first lines name a column."""

PROBABILITY_BIN_EDGES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class Finding(ABC):
    """A result with three forms: sentences, figures for JSON, and a page."""

    title: ClassVar[str]
    """Title of the page."""
    file: ClassVar[str]
    """Name of the file with the figures."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The result in sentences, the most important first."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """The figures by name, as JSON values."""

    @abstractmethod
    def blocks(self) -> list[Block]:
        """The result as blocks of a page."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def as_data(self) -> dict[str, Any]:
        """The whole result as JSON values.

        Returns:
            The figures by name, and the sentences under `lines`.
        """
        return {"lines": self.lines(), **self.figures()}

    def report(self, path: str | Path) -> None:
        """Writes the result as a page.

        Args:
            path: Folder for index.html, README.md and a file with the figures.
        """
        data = json.dumps(self.as_data(), indent=1)
        write_pages(Path(path), self.title, self.blocks(), {self.file: data})


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OffPolicy(Finding):
    """Off-policy estimates of the value of a policy, and how far they can be trusted.

    `estimates` has a row for each method, per `decision` and per `trajectory`: the value of the
    policy over `rounds` rounds, and its gain over the rewards of the log, with 90 % intervals. It
    is empty where the log does not support an estimate; `support.refusal` gives the reason.

    `done` is the mean reward of the log itself. `estimated` is true where the propensities were
    estimated. `overlap` counts the log's decisions by their probability, and how often the policy
    agrees. `balance` compares people who were acted on with the others. `hidden_cause` is the
    sensitivity of the gain to confounding: the factor by which a hidden cause would have to change
    the odds of being acted on to bring the gain to 0. It is None where propensities were not
    estimated, or where there is no gain. `left_out` counts decisions without a probability.
    """

    title: ClassVar[str] = "What a policy would have earned"
    file: ClassVar[str] = "evidence.json"

    estimates: pl.DataFrame
    done: Interval
    support: Support
    rounds: int
    estimated: bool
    overlap: pl.DataFrame
    balance: pl.DataFrame
    hidden_cause: float | None
    left_out: int

    @property
    def refusal(self) -> str:
        """The reason why there is no estimate; empty if there is one."""
        return self.support.refusal

    @property
    def gain(self) -> Interval | None:
        """The doubly robust gain per decision; None where the log does not support an estimate."""
        for row in self.estimates.iter_rows(named=True):
            if (row["method"], row["per"]) == ("doubly robust", "decision"):
                half = (row["gain_high"] - row["gain_low"]) / 2 / STANDARD_ERRORS
                return Interval(row["gain"], row["gain_low"], row["gain_high"], half)
        return None

    def lines(self) -> list[str]:
        """The result in sentences, the most important first."""
        gain, support = self.gain, self.support
        rounds = "a round" if self.rounds == 1 else f"{self.rounds} rounds"
        if gain is None:
            first = f"The log cannot carry an estimate: {self.refusal}."
        else:
            word = "more" if gain.estimate >= 0 else "less"
            first = (
                f"The policy earns {abs(gain.estimate):.4g} {word} per person in {rounds} than was "
                f"earned, {self.done.estimate:.4g} (90 % interval {gain.low:+.4g} to "
                f"{gain.high:+.4g})."
            )
        lines = [first]
        if self.estimated:
            lines.append(
                "The log does not say with which probabilities its actions were taken: they were "
                "estimated from states and features, which is valid only if nothing else "
                "influenced who was acted on."
            )
        apart = self.balance.filter(pl.col("difference").abs() > NOTABLE_DIFFERENCE)
        if apart.height:
            named = ", ".join(
                f"{row['what']} ({row['difference']:+.2f} standard deviations)"
                for row in apart.iter_rows(named=True)
            )
            lines.append(
                f"People who were acted on differ from the others: {named}. The weights account "
                "for the columns of the log, and for no other cause."
            )
        if self.hidden_cause is not None:
            lines.append(
                "To undo the gain, a hidden cause would have to change the odds of being acted on "
                f"by a factor of {self.hidden_cause:.1f} and determine the outcome."
            )
        lines.append(
            f"The effective sample size is {support.effective:,.0f} of {support.units:,} units; "
            f"the largest has {support.largest:.1%} of all weight, and the mean weight is "
            f"{support.mean_weight:.2f} (1 if the probabilities are right)."
        )
        if self.left_out:
            lines.append(
                f"{self.left_out:,} decisions without a probability were left out, such as those "
                "in which the list was not followed."
            )
        return lines

    def figures(self) -> dict[str, Any]:
        """The figures by name, as JSON values."""
        return {
            "rounds": self.rounds,
            "done": self.done.as_data(),
            "support": dataclasses.asdict(self.support),
            "estimated_probabilities": self.estimated,
            "hidden_cause": self.hidden_cause,
            "left_out": self.left_out,
            "estimates": self.estimates.to_dicts(),
            "overlap": self.overlap.to_dicts(),
            "balance": self.balance.to_dicts(),
        }

    def blocks(self) -> list[Block]:
        """The result as blocks of a page."""
        value = "{value:.4f} ({value_low:.4f} to {value_high:.4f})"
        gain = "{gain:+.4f} ({gain_low:+.4f} to {gain_high:+.4f})"
        columns = {"method": "{method}", "per": "{per}", "value": value, "gain": gain}
        chance = {"probability": "{low:g} to {high:g}", "decisions": "{n:,}",
                  "policy agrees": "{agrees:.1%}", "mean weight": "{weight:.2f}"}  # fmt: skip
        compared = {"": "{what}", "acted on": "{acted:.3f}", "others": "{others:.3f}",
                    "difference": "{difference:+.2f}"}  # fmt: skip
        parts: list[Block] = [Text(line) for line in self.lines()]
        if self.balance.height:
            parts += [
                Heading("People who were acted on, and the others"),
                Text("The difference is in standard deviations."),
                _grid(self.balance, compared),
            ]
        if self.estimates.height:
            parts += [
                Heading("Estimates"),
                Text("Value of the policy and gain over what was done, with 90 % intervals."),
                _grid(self.estimates, columns),
            ]
        return [*parts, Heading("How likely the decisions of the log were"),
                _grid(self.overlap, chance)]  # fmt: skip


def off_policy_rows(
    reward: Any, probability: Any, target: Any, *, unit: Any = None, prediction: Any = None,
    expected: Any = None,
) -> OffPolicy:  # fmt: skip
    """Evaluates a policy on single decisions, such as recommendations and whether they were
    clicked.

    Same estimators as `off_policy`, with episodes of one step.

    Args:
        reward: (row,) The reward that followed each decision.
        probability: (row,) The probability with which the log took this decision.
        target: (row,) The probability with which the evaluated policy takes this decision.
        unit: (row,) The cluster of each row, such as a person, for clustered standard errors. If
            left out, rows are independent.
        prediction: (row,) The predicted reward of the logged decision; the mean reward if left out.
        expected: (row,) The predicted reward under the evaluated policy; the mean reward if left
            out.

    Returns:
        An `OffPolicy`.

    >>> import numpy as np
    >>> import prefermab as pm
    >>> rng = np.random.default_rng(0)
    >>> action = rng.random(1000) < 0.3
    >>> reward = (rng.random(1000) < np.where(action, 0.6, 0.2)).astype(float)
    >>> probability, target = np.where(action, 0.3, 0.7), action.astype(float)
    >>> found = pm.evidence.off_policy_rows(reward, probability, target)
    >>> found.gain.low < 0.6 - 0.32 < found.gain.high
    True
    """
    given = {"reward": reward, "probability": probability, "target": target}
    arrays = {name: np.asarray(value, float) for name, value in given.items()}
    size = len(arrays["reward"])
    for name, values in arrays.items():
        if values.shape != (size,) or not np.isfinite(values).all():
            raise InputError(f"{name} must hold a finite number for each of {size} rows.")
    chance, wanted = arrays["probability"], arrays["target"]
    if not ((chance > 0) & (chance <= 1)).all():
        raise InputError("probability must be above 0 and at most 1 in every row.")
    if not ((wanted >= 0) & (wanted <= 1)).all():
        raise InputError("target must lie between 0 and 1 in every row.")
    episodes = row_episodes(arrays["reward"], wanted / chance, prediction, expected, unit)
    support = judge_support(episodes)
    return OffPolicy(
        estimates_table(None if support.refusal else episodes), logged_value(episodes), support, 1,
        False, overlap_table(chance, wanted), pl.DataFrame(schema={"difference": pl.Float64}), None,
        0,
    )  # fmt: skip


def estimates_table(episodes: Episodes | None) -> pl.DataFrame:
    """One row for each method; no rows if `episodes` is None."""
    names = [f"{what}{end}" for what in ("value", "gain") for end in ("", "_low", "_high")]
    schema = {"method": pl.String, "per": pl.String, **dict.fromkeys(names, pl.Float64)}
    rows = [] if episodes is None else [
        (*name, *(x for each in both for x in (each.estimate, each.low, each.high)))
        for name, both in sorted(method_intervals(episodes).items())
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def overlap_table(probability: np.ndarray, target: np.ndarray) -> pl.DataFrame:
    """Decisions of the log by their probability: their number, the mean probability with which the
    policy takes them, and their mean weight."""
    edges = PROBABILITY_BIN_EDGES
    place = np.clip(np.searchsorted(edges, probability, side="left") - 1, 0, len(edges) - 2)
    rows = [
        (edges[at], edges[at + 1], int(here.sum()), float(target[here].mean()),
         float((target[here] / probability[here]).mean()))
        for at in range(len(edges) - 1)
        if (here := place == at).any()
    ]  # fmt: skip
    schema = {"low": pl.Float64, "high": pl.Float64, "n": pl.Int64, "agrees": pl.Float64,
              "weight": pl.Float64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def _grid(frame: pl.DataFrame, columns: dict[str, str]) -> Grid:
    rows = [
        [Cell(c.format(**row)) for c in columns.values()] for row in frame.iter_rows(named=True)
    ]
    return Grid(list(columns), rows)
