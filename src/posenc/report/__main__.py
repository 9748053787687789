"""`python -m posenc.report`, which is `posenc.commands.report`."""

from posenc.commands.report import main

main()
