"""Rules that a plan must keep: one file for each, `Rules` holds them all.

A new rule is a class in a file of its own and an import below; see `base.Rule`.
"""

# The order of the imports is that of the settings of `Rules`.
# isort: skip_file

from prefermab.programme.planning.rules.base import IN as IN
from prefermab.programme.planning.rules.base import OUT as OUT
from prefermab.programme.planning.rules.base import RULES as RULES
from prefermab.programme.planning.rules.base import Rules as Rules
from prefermab.programme.planning.rules.exclude import Exclude as Exclude
from prefermab.programme.planning.rules.lock import Lock as Lock
from prefermab.programme.planning.rules.cooldown import Cooldown as Cooldown
from prefermab.programme.planning.rules.shares import Shares as Shares
from prefermab.programme.planning.rules.budgets import WorkerBudgets as WorkerBudgets
from prefermab.programme.planning.rules.ignore import IgnoredColumns as IgnoredColumns
from prefermab.programme.planning.rules.base import ANY as ANY
from prefermab.programme.planning.rules.shared import SharedLimits as SharedLimits
