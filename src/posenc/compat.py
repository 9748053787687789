"""What is taken from a library's private parts, each with the reason and the version it was seen in."""

from argparse import ArgumentParser


def hydra_arguments() -> ArgumentParser:
    """The parser of Hydra's own command line: what follows a flag such as --cfg is no override (hydra-core 1.3.8).

    There is no public way to it; `hydra.main` makes one for itself.
    """
    from hydra._internal.utils import get_args_parser

    return get_args_parser()
