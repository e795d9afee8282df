"""Recipe `paper-literal`: the paper to the letter, for comparison.

Where the paper prints a choice, this takes it; where it prints nothing, it takes what the authors'
released code does. Only what differs from recipe `paper` is written here; docs/decisions/paper.md
has a row for each, with what it changes. What belongs to a domain (how arms and projections are
drawn) is a setting of the domain.
"""

import dataclasses
from typing import ClassVar

from prefermab.recipes.paper import Paper


@dataclasses.dataclass(frozen=True)
class PaperLiteral(Paper):
    """The paper to the letter, and where it is silent its authors' released code.

    >>> import prefermab as pm
    >>> pm.recipes.Paper.literal(epochs=50).price_network
    'concatenated'
    """

    name: ClassVar[str] = "paper-literal"

    features: str = "plain"  #: The paper does not scale features.
    state_code: str = "plain"  #: States as they are; the released code has one-hot 0 and 1.
    price_network: str = "concatenated"  #: Λ takes the states, features and opt-in of N arms.
    price_output: str = "plain"  #: All output layers have identity activation.
    price_start: float = 0.0  #: Not printed; the released code starts anywhere around 0.
    price_decays: str = "epoch"  #: Not printed; the released code: after every epoch and update.
    redraw: str = "epoch"  #: Lines 5 to 10 are inside the loop over epochs.
    step_on: str = "arm"  #: Not printed; the released code takes a step for each arm that is in.
    advantage: str = "standardised"  #: Not printed; the released code does so for each arm.
    critic_target: str = "returns"  #: Not printed; the released code has discounted rewards-to-go.
    cooling: str = "whole"  #: Not printed; the released code: 0 in the last epoch of a block.
    entropy_frozen: str = "off"  #: Not printed; the released code has no bonus in the last epochs.
    actor: str = "last"  #: Algorithm 1 ends with the networks as they are.
