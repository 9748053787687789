"""Build the interactive page from committed results: `posenc explore`."""

from collections.abc import Sequence
from pathlib import Path

from posenc.config.arguments import Arguments
from posenc.errors import UserError


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc explore", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder with the curves; default: %(default)s"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/explore.html"), help="default: %(default)s")
    with parser.parsed(arguments) as given:
        from posenc.config.files import CONF
        from posenc.report.explore import html
        from posenc.storage.atomic import atomic_write, check_writable

        if not given.results.exists():
            raise UserError(f"--results={given.results} does not exist: a checkout of the repository has it")
        if given.out.is_dir():
            raise UserError(f"--out={given.out} is a folder: name a file")
        check_writable(f"--out={given.out}", given.out.parent)
        page = html(given.results, CONF)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(given.out, page)
        print(f"Page: {given.out}")


if __name__ == "__main__":
    main()
