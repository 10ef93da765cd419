"""The names of ``spec_core.host``; ``__init__.py`` imports each when it is first used."""

from spec_core.host.choice import sample_then_match as sample_then_match
from spec_core.host.driver import Host as Host
from spec_core.host.engine import EngineModel as EngineModel
from spec_core.host.engine import Serves as Serves
from spec_core.host.engine import check_methods as check_methods
from spec_core.host.progress import Progress as Progress
