"""What a training is judged by while it runs, alike for all recipes."""

import equinox as eqx
from jaxtyping import Array, Float


class Metrics(eqx.Module):
    """Mean reward of an arm in a round, mean spending in a round, the price, the share of arms
    acted on, and the loss of what values states.
    """

    reward: Float[Array, "..."]
    spending: Float[Array, "..."]
    price: Float[Array, "..."]
    acted: Float[Array, "..."]
    loss: Float[Array, "..."]


METRICS = ("reward", "spending", "price", "acted", "loss")
