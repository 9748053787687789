"""The ranks of a run: rank of this process, communication, and error reporting."""

from posenc.distributed.group import broadcast, first_to_report, named_peer_failures, rank_zero_first, report_error
from posenc.distributed.rank import adopt_srun, rank_zero_output, this_rank
