"""The report's findings as data, for other programs and for the sentences of docs/reading.md."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from prefermab.paper.cells import CellComparison, Lift
from prefermab.paper.claims import interquartile_mean
from prefermab.paper.noise import Fit
from prefermab.paper.report import PaperFindings


def findings_as_data(findings: PaperFindings) -> dict[str, Any]:
    """Every cell and every claim, the noise of published figures and the samples of fine-tuning."""
    return {
        "cells": [cell_as_data(cell) for cell in findings.judged],
        "claims": [
            {"part": part, **{k: _known(v) for k, v in dataclasses.asdict(trend).items()}}
            for part, trends in findings.trends.items()
            for trend in trends
        ],
        "noise": [
            *_fits("reward", findings.noise.level),
            *_fits("over No Action", findings.noise.lift),
        ],
        "samples": [
            {"where": where, "who": who, "mean": _known(interquartile_mean(values)),
             "seeds": len(values), "never": int(sum(math.isinf(value) for value in values))}
            for where, each in findings.samples.items()
            for who, values in each.items()
        ],
    }  # fmt: skip


def cell_as_data(cell: CellComparison) -> dict[str, Any]:
    """One cell; None where a field does not apply. `recipe` is who plays, baselines included."""
    plain = {
        "table": cell.table.name,
        "cell": cell.where,
        "policy": cell.policy,
        "recipe": cell.who,
        "published": cell.published.mean,
        "corrected": cell.published.corrected,
        "published_sd": cell.published.sd,
        "mean": cell.ours.value,
        "stderr": cell.ours.stderr,
        "mark": cell.mark,
        "of_bound": cell.of_bound,
        "of_informed": cell.of_informed,
        "bound": cell.bound,
        "above_bound": cell.above_bound,
    }
    return {name: _known(value) for name, value in (plain | _lift(cell.lift)).items()}


def _lift(lift: Lift | None) -> dict[str, Any]:
    if lift is None:
        return dict.fromkeys(("lift", "lift_stderr", "published_lift", "lift_mark"))
    pair = lift.pair
    return {
        "lift": pair.ours,
        "lift_stderr": pair.stderr,
        "published_lift": pair.published,
        "lift_mark": lift.mark,
    }


def _fits(what: str, fits: Mapping[str, Fit]) -> list[dict[str, Any]]:
    return [{"domain": name, "what": what, **dataclasses.asdict(it)} for name, it in fits.items()]


def _known(value: Any) -> Any:
    """None for what is not a finite number, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
