"""Evidence that a programme does good: off-policy estimates and trials.

Off-policy: `off_policy` for a log with probabilities, `off_policy_rows` for rows that stand alone.
"""

from prefermab.programme.evidence.logged import off_policy
from prefermab.programme.evidence.results import OffPolicy, off_policy_rows

__all__ = ["OffPolicy", "off_policy", "off_policy_rows"]
