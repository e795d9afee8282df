"""Evidence that a programme does good: off-policy estimates and trials.

Off-policy: `off_policy` for a log with probabilities, `off_policy_rows` for rows that stand alone.
Trials: `needed` says how large one must be, `randomise` fixes it, `rehearse` plays it with made-up
people, `analyse` says what it shows.
"""

from prefermab.programme.evidence.analysis import TrialResult, analyse
from prefermab.programme.evidence.designs import Design
from prefermab.programme.evidence.logged import off_policy
from prefermab.programme.evidence.power import Needed, TrialProgramme, needed
from prefermab.programme.evidence.protocol import Protocol, randomise, read_protocol
from prefermab.programme.evidence.results import OffPolicy, off_policy_rows
from prefermab.programme.evidence.trial_logs import rehearse
from prefermab.programme.intervals import Interval

__all__ = [
    "Design",
    "Interval",
    "Needed",
    "OffPolicy",
    "Protocol",
    "TrialProgramme",
    "TrialResult",
    "analyse",
    "needed",
    "off_policy",
    "off_policy_rows",
    "randomise",
    "read_protocol",
    "rehearse",
]
