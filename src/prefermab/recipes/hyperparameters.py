"""The hyperparameters of recipe `paper`: first those of the paper's table and text, then choices
between several ways, with ours as the default."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.errors import InputError, unknown
from prefermab.opt_in import Streaming
from prefermab.pricing import OUTPUTS
from prefermab.recipes.base import Recipe
from prefermab.recipes.ppo import descend_arm_by_arm, descend_on_all
from prefermab.shaping import check_shaping


def standardised(gain: Float[Array, "round arm"]) -> Float[Array, "round arm"]:
    """Advantages of each arm with mean 0 and spread 1."""
    spread = jnp.std(gain, axis=0)
    return (gain - jnp.mean(gain, axis=0)) / jnp.maximum(spread, 1e-8)


def cooled_to_a_part(at: Int[Array, ""], size: int) -> Float[Array, ""]:
    """1 in the first epoch of a block of `size` epochs, 1/size in its last."""
    return 1 - at / size


def cooled_to_nothing(at: Int[Array, ""], size: int) -> Float[Array, ""]:
    """1 in the first epoch of a block of `size` epochs, 0 in its last."""
    return 1 - at / max(size - 1, 1)


def decayed_at_updates(epoch: Int[Array, ""], every: int) -> Int[Array, ""]:
    """How often the price's step size has been reduced: at each update."""
    return epoch // every


def decayed_at_epochs(epoch: Int[Array, ""], every: int) -> Int[Array, ""]:
    """How often it has been reduced: after each epoch, and once more after each earlier update."""
    return epoch + epoch // every - 1


ADVANTAGES: dict[str, Callable[[Array], Array]] = {
    "plain": lambda gain: gain,
    "standardised": standardised,
}
COOLINGS = {"part": cooled_to_a_part, "whole": cooled_to_nothing}
DECAYS = {"update": decayed_at_updates, "epoch": decayed_at_epochs}
DESCENTS = {"batch": descend_on_all, "arm": descend_arm_by_arm}

CHOICES: dict[str, tuple[str, ...]] = {
    "features": ("whitened", "plain"),
    "state_code": ("centred", "plain"),
    "price_network": ("pooled", "concatenated"),
    "price_output": tuple(OUTPUTS),
    "price_decays": tuple(DECAYS),
    "redraw": ("block", "epoch"),
    "arrivals": ("redraw", "streaming"),
    "step_on": tuple(DESCENTS),
    "advantage": tuple(ADVANTAGES),
    "critic_target": ("advantages", "returns"),
    "cooling": tuple(COOLINGS),
    "entropy_frozen": ("on", "off"),
    "actor": ("mean", "last"),
}
"""The values of each hyperparameter that is a choice, the default first."""


def check_choices(recipe: object) -> None:
    """Raises `InputError` unless each choice is one of its values."""
    for name, ways in CHOICES.items():
        chosen = getattr(recipe, name)
        if chosen not in ways:
            raise unknown(name, str(chosen), ways)


@dataclasses.dataclass(frozen=True)
class Hyperparameters(Recipe):
    """Hyperparameters of recipe `paper`; the training itself is in `Paper`."""

    unit: ClassVar[str] = "epoch"
    later: ClassVar[tuple[str, ...]] = (*CHOICES, "price_start", "stay", "newcomers")
    may_be_zero: ClassVar[tuple[str, ...]] = ("seed", "freeze")

    epochs: int = 100
    """Rounds of collecting and learning (n_epochs)."""
    rounds: int = 100
    """Rounds played in an epoch (n_steps)."""
    subepochs: int = 4
    """Epochs between two updates of the price network (n_subepochs)."""
    freeze: int = 20
    """Last epochs in which the price network stays as it is (lambda freeze epochs)."""
    opt_in: float = 0.8
    """Chance that an arm is in (training opt-in rate)."""
    passes: int = 20
    """Gradient steps on an epoch's data (trains per epoch)."""
    clip: float = 2.0
    """How far PPO lets the probability of an action move (agent clip ratio)."""
    entropy_start: float = 0.5
    """Weight of the entropy bonus at the start; it is cooled within a block as well."""
    entropy_end: float = 0.0
    """Weight of the entropy bonus at the end."""
    actor_rate: float = 2e-3
    """Step size of Adam for the actor (actor learning rate)."""
    critic_rate: float = 2e-3
    """Step size of Adam for the critic (critic learning rate)."""
    price_rate: float = 2e-3
    """Step size of the price network at the start (lambda initial learning rate)."""
    price_decay: float = 0.99
    """Factor by which that step size falls (lambda scheduler discount rate)."""
    discount: float = 0.9
    """Discount factor per round."""
    trace: float = 0.97
    """λ of generalised advantage estimation."""
    width: int = 16
    """Neurons in a hidden layer, tanh."""
    depth: int = 2
    """Hidden layers."""
    shaping: str | Callable = "none"
    """StateShaping of a state that is a number: none, isotonic, knn, or in Python a function."""
    features: str = "whitened"
    """Features as networks see them: whitened, or plain."""
    state_code: str = "centred"
    """Codes of states from -1 to 1 (centred), or from 0 to 1 (plain)."""
    price_network: str = "pooled"
    """pooled for any number of arms, or concatenated for one."""
    price_output: str = "softplus"
    """softplus for a price that is never below 0, or plain."""
    price_start: float = 0.5
    """Added to the price network's last bias before training."""
    price_decays: str = "update"
    """The price's step size falls with each update, or each epoch."""
    redraw: str = "block"
    """Who is in is decided anew for each block between price updates, or each epoch."""
    arrivals: str = "redraw"
    """redraw who is in place by place, or streaming: people stay or leave, and newcomers ask."""
    stay: float = 0.9
    """With streaming, chance that a person who is in asks to stay."""
    newcomers: float = 2.0
    """With streaming, mean number of newcomers who ask; those beyond capacity are turned away."""
    step_on: str = "batch"
    """A pass is one step on the batch of all arms, or one for each arm."""
    advantage: str = "plain"
    """Advantages are left plain, or standardised for each arm."""
    critic_target: str = "advantages"
    """The critic learns values plus advantages, or the returns."""
    cooling: str = "part"
    """Within a block the entropy bonus cools to a part (1/subepochs), or as a whole, to 0."""
    entropy_frozen: str = "on"
    """The entropy bonus while the price is frozen: on or off."""
    actor: str = "mean"
    """The trained actor is the mean over the frozen epochs, or the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount >= 1:
            raise InputError(f"discount must be below 1 for the recipe paper, not {self.discount}.")
        check_shaping(self.shaping)
        check_choices(self)
        Streaming(self.stay, self.newcomers)
