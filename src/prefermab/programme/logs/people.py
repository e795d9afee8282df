"""How much people differ beyond their features: a Dirichlet around what the features say.

A person's own probabilities in a state under an action are Dirichlet(κ p), p what the features
say; with the person's own counts, Dirichlet(κ p + counts). A large κ means that people with the
same features are alike. κ has its posterior on a grid, so it is uncertain as all else is.
"""

import numpy as np
from scipy.special import gammaln, logsumexp

GRID = 2.0 ** np.arange(0, 13)
LEAST = 1e-6


def log_evidence(chances: np.ndarray, counts: np.ndarray, kappa: float) -> float:
    """Log-probability of counts (cell, state) under the Dirichlet-multinomial, but for what does
    not depend on κ.

    >>> import numpy as np
    >>> from prefermab.programme.logs.people import log_evidence
    >>> half, twice = np.array([[0.5, 0.5]]), np.array([[2.0, 0.0]])
    >>> round(float(np.exp(log_evidence(half, twice, 1.0))), 4)  # 1/2 · (1/2 + 1)/(1 + 1)
    0.375
    """
    share = kappa * np.maximum(chances, LEAST)
    whole = share.sum(axis=1)
    each = (gammaln(share + counts) - gammaln(share)).sum(axis=1)
    return float((each + gammaln(whole) - gammaln(whole + counts.sum(axis=1))).sum())


def kappa_weights(chances: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How likely each κ of the grid is, all equally so before the log is seen."""
    # A cell seen once says nothing about how people differ from each other.
    often = counts.sum(axis=1) > 1
    scores = np.array([log_evidence(chances[often], counts[often], kappa) for kappa in GRID])
    return np.exp(scores - logsumexp(scores))


def how_much_each_counts(total: np.ndarray, kappa: float) -> np.ndarray:
    """The weight of each transition in a cell of `total` of them: those of one person say less of
    the population than as many of different people, by the variance of the Dirichlet-multinomial.

    >>> import numpy as np
    >>> from prefermab.programme.logs.people import how_much_each_counts
    >>> how_much_each_counts(np.array([1.0, 9.0]), 1.0).tolist()
    [1.0, 0.2]
    """
    return (1 + kappa) / (np.maximum(total, 1) + kappa)
