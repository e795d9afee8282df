"""Evidence that a programme has an effect: off-policy evaluation and randomised trials.

Off-policy evaluation: `off_policy` for a log with the probabilities of its actions,
`off_policy_rows` for single decisions that do not form episodes.

Trials: `needed` computes the sample size for a given power, `randomise` assigns the arms and fixes
the analysis in a protocol, `rehearse` simulates a log of the trial, `analyse` estimates the effect.
"""

from prefermab.common.intervals import Interval
from prefermab.programme.evidence.analysis import TrialResult, analyse
from prefermab.programme.evidence.designs import Design
from prefermab.programme.evidence.logged import off_policy
from prefermab.programme.evidence.power import SampleSize, TrialProgramme, needed
from prefermab.programme.evidence.protocol import Protocol, randomise, read_protocol
from prefermab.programme.evidence.results import OffPolicy, off_policy_rows
from prefermab.programme.evidence.trial_logs import rehearse

__all__ = [
    "Design",
    "Interval",
    "OffPolicy",
    "Protocol",
    "SampleSize",
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
