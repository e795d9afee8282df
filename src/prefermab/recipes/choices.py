"""What recipe `paper` may do in more than one way: for each such hyperparameter the ways by name.

The first is ours and the default, the other what the paper prints or, where it prints nothing, what
its authors' released code does (`paper-literal`). docs/decisions.md has a row for each.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.errors import unknown
from prefermab.pricing import OUTPUTS
from prefermab.recipes.ppo import descend_arm_by_arm, descend_on_all


def standardised(gain: Float[Array, "round arm"]) -> Float[Array, "round arm"]:
    """Advantages of each arm with mean 0 and spread 1."""
    spread = jnp.std(gain, axis=0)
    return (gain - jnp.mean(gain, axis=0)) / jnp.maximum(spread, 1e-8)


def cooled_to_a_part(at: Int[Array, ""], size: int) -> Float[Array, ""]:
    """1 at the start of a block of so many epochs, 1/size in its last."""
    return 1 - at / size


def cooled_to_nothing(at: Int[Array, ""], size: int) -> Float[Array, ""]:
    """1 at the start of a block of so many epochs, 0 in its last."""
    return 1 - at / max(size - 1, 1)


def decayed_at_updates(epoch: Int[Array, ""], every: int) -> Int[Array, ""]:
    """How often the price's step size has been reduced: at each update."""
    return epoch // every


def decayed_at_epochs(epoch: Int[Array, ""], every: int) -> Int[Array, ""]:
    """After each epoch, and after each earlier update once more."""
    return epoch + epoch // every - 1


ADVANTAGES: dict[str, Callable[[Array], Array]] = {
    "plain": lambda gain: gain,
    "standardised": standardised,
}
COOLINGS = {"part": cooled_to_a_part, "whole": cooled_to_nothing}
DECAYS = {"update": decayed_at_updates, "epoch": decayed_at_epochs}
STEPS = {"batch": descend_on_all, "arm": descend_arm_by_arm}

CHOICES: dict[str, tuple[str, ...]] = {
    "features": ("whitened", "plain"),
    "state_code": ("centred", "plain"),
    "price_network": ("pooled", "concatenated"),
    "price_output": tuple(OUTPUTS),
    "price_decays": tuple(DECAYS),
    "redraw": ("block", "epoch"),
    "arrivals": ("redraw", "streaming"),
    "step_on": tuple(STEPS),
    "advantage": tuple(ADVANTAGES),
    "critic_target": ("advantages", "returns"),
    "cooling": tuple(COOLINGS),
    "entropy_frozen": ("on", "off"),
    "actor": ("mean", "last"),
}
"""The ways of each hyperparameter that has several, ours first."""


def check_choices(recipe: object) -> None:
    """Raises `InputError` unless each choice is one of its ways."""
    for name, ways in CHOICES.items():
        chosen = getattr(recipe, name)
        if chosen not in ways:
            raise unknown(name, str(chosen), ways)
