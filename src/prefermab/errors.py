"""The errors and warnings of this package, by the path that users import them from."""

from prefermab.common.errors import BusyError as BusyError
from prefermab.common.errors import InputError as InputError
from prefermab.common.errors import InputWarning as InputWarning
from prefermab.common.errors import PrefermabError as PrefermabError
from prefermab.common.errors import StorageError as StorageError
from prefermab.common.errors import UnlikeTrainingWarning as UnlikeTrainingWarning
