"""All that was learned from a log: as one page of words, as a model's card, and as data."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from prefermab.model import Model
from prefermab.programme.logs import words
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.heldout import HeldOut, verdict
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.verdict import Findings


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """All that was learned from a log."""

    log: Log
    fit: Fit
    model: Model
    transitions: pl.DataFrame
    effects: pl.DataFrame
    groups: pl.DataFrame
    held_out: list[HeldOut]
    findings: Findings


def card(learned: Learned) -> str:
    """The card of a model that was learned from a log."""
    model = learned.model
    return (
        f"# Learned from {learned.log.where}, recipe `{model.recipe}`\n\n"
        f"States {', '.join(model.state_names)}; actions {', '.join(model.action_names)}; "
        f"features {', '.join(model.feature_names) or 'none'}.\n\n"
        + "\n\n".join(first_page(learned))
        + "\n"
    )


def first_page(learned: Learned) -> list[str]:
    """What who decides has to know, a paragraph each."""
    log, found = learned.log, learned.findings
    wrong = words.could_be_wrong(found)
    told = [
        words.headline(log, found, learned.model.budget),
        words.in_the_log(log),
        f"**How sure is that?** {words.how_sure(found)}" if found.judged else "",
        words.about_scores(learned.fit),
        f"**For whom?** {words.for_whom(found, learned.groups)}",
        f"**What could be wrong?** {' '.join(wrong)}" if wrong else "",
        f"**What next?** {words.next_step(found, log)}",
    ]
    return [paragraph for paragraph in told if paragraph]


def as_data(learned: Learned) -> dict[str, Any]:
    """Everything in the report, as JSON can hold it."""
    held, model, found = learned.held_out, learned.model, learned.findings
    return {
        "summary": first_page(learned),
        "verdict": found.verdict,
        **_gain_data(found),
        "warnings": [
            {"code": c.code, "sentence": c.sentence, "spoils": c.spoils} for c in found.cautions
        ],
        "found": dataclasses.asdict(learned.log.found),
        "states": list(model.state_names),
        "actions": list(model.action_names),
        "features": list(model.feature_names),
        "costs": learned.log.meaning.costs.tolist(),
        "rewards": learned.log.meaning.rewards.tolist(),
        "n_arms": model.n_arms,
        "budget": model.budget,
        "spent": learned.log.spent,
        "earned": learned.log.earned,
        "acting_matters": learned.fit.acts,
        "balance": found.allocation.balance.to_dicts(),
        "transitions": learned.transitions.to_dicts(),
        "effects": learned.effects.to_dicts(),
        "groups": learned.groups.to_dicts(),
        "held_out": [
            {
                "held": each.held,
                "losses": each.losses.to_dicts(),
                "calibration": each.calibration.to_dicts(),
                "verdict": verdict(each),
            }
            for each in held
        ],
    }


def _gain_data(found: Findings) -> dict[str, Any]:
    """The gain and the placebo; null where nothing could be judged."""
    judged = found.judged
    if judged is None:
        return dict.fromkeys(("gain", "placebo", "rounds", "noticed", "hidden_cause", "compared"))
    parts = lambda gain: {"estimate": gain.estimate, "low": gain.low, "high": gain.high}  # noqa: E731
    each = [parts(gain) for gain in found.placebo]
    return {
        "gain": parts(judged.gain),
        "placebo": {
            **{name: float(np.mean([one[name] for one in each])) for name in each[0]},
            "shuffles": len(each),
            "shown": sum(gain.shown for gain in found.placebo),
            "estimates": [one["estimate"] for one in each],
        },
        "rounds": judged.rounds,
        "noticed": judged.noticed,
        "hidden_cause": judged.hidden,
        "compared": [
            {"policy": name, "earned": judged.earned[name], "gain": parts(gain)}
            for name, gain in judged.gains.items()
        ],
    }
