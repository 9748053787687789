"""`python -m posenc.report`; see `posenc.commands.report`."""

from posenc.commands.report import main

main()
