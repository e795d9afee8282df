"""`pm.opt_in`: who is in the programme in each round. The code is in `prefermab.arms.opt_in`."""

from prefermab.arms.opt_in import Redrawn as Redrawn
from prefermab.arms.opt_in import Streaming as Streaming
from prefermab.arms.opt_in import fixed_share as fixed_share
from prefermab.arms.opt_in import joins as joins
from prefermab.arms.opt_in import opted_in_count as opted_in_count
from prefermab.arms.opt_in import redraw as redraw
from prefermab.arms.opt_in import schedules as schedules
