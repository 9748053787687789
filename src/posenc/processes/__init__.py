"""The processes that train one run together: which this one is, who starts them, and how they end as one."""

from posenc.processes.meeting import first_to_tell, tell
from posenc.processes.place import Place, place
from posenc.processes.together import Together, quiet_unless_first, together

__all__ = ["Place", "Together", "first_to_tell", "place", "quiet_unless_first", "tell", "together"]
