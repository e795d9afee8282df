"""Recipe `paper-literal`: the paper to the letter, for comparison.

Where the paper prints a choice, this takes it; where it prints nothing, it takes what the authors'
released code does. It is recipe `paper` with other values, each with its reason;
docs/decisions/paper.md has a row for each, with what it changes. What belongs to a domain (how arms
and projections are drawn) is a setting of the domain.

>>> import prefermab as pm
>>> pm.recipes.Paper.literal(epochs=50).price_network
'concatenated'
"""

from prefermab.recipes.base import preset
from prefermab.recipes.paper import Paper

LITERAL = {
    "features": ("plain", "The paper does not scale features."),
    "state_code": ("plain", "States as they are; the released code has one-hot 0 and 1."),
    "price_network": ("concatenated", "Λ takes the states, features and opt-in of N arms."),
    "price_output": ("plain", "All output layers have identity activation."),
    "price_start": (0.0, "Not printed; the released code starts anywhere around 0."),
    "price_decays": ("epoch", "Not printed; the released code: after every epoch and update."),
    "redraw": ("epoch", "Lines 5 to 10 are inside the loop over epochs."),
    "step_on": ("arm", "Not printed; the released code takes a step for each arm that is in."),
    "advantage": ("standardised", "Not printed; the released code does so for each arm."),
    "critic_target": ("returns", "Not printed; the released code has discounted rewards-to-go."),
    "cooling": ("whole", "Not printed; the released code: 0 in the last epoch of a block."),
    "entropy_frozen": ("off", "Not printed; the released code has no bonus in the last epochs."),
    "actor": ("last", "Algorithm 1 ends with the networks as they are."),
}
"""The values that differ from recipe `paper`, and why."""

PaperLiteral = preset(
    Paper, "paper-literal", LITERAL,
    "The paper to the letter, and where it is silent its authors' released code.", __name__,
)  # fmt: skip
