"""The processes that train one run together: which this one is, who starts them, and how they end as one."""

from posenc.distributed.group import Together, quiet_unless_first, together
from posenc.distributed.rank import Place, place
from posenc.distributed.rendezvous import first_to_tell, tell

__all__ = ["Place", "Together", "first_to_tell", "place", "quiet_unless_first", "tell", "together"]
