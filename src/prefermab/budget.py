"""`pm.budget`: choice of actions within a budget. The code is in `prefermab.arms.budget`."""

from prefermab.arms.budget import by_price as by_price
from prefermab.arms.budget import clearing_price as clearing_price
from prefermab.arms.budget import cost_of as cost_of
from prefermab.arms.budget import greedy as greedy
from prefermab.arms.budget import lowest_price as lowest_price
from prefermab.arms.budget import preferred as preferred
from prefermab.arms.budget import price_bracket as price_bracket
from prefermab.arms.budget import price_ceiling as price_ceiling
from prefermab.arms.budget import spending_at as spending_at
