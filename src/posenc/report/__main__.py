"""`python -m posenc.report`; see `posenc.commands.report`."""

import sys

from posenc.commands.report import main

sys.argv[0] = "posenc report"  # errors begin with it
main()
