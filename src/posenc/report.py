"""Not yet."""


def report(folder: str) -> None:
    """Nothing yet."""
    print(folder)
