"""Which release of a library measures: part of what a column is kept under."""


def installed(name: str) -> str:
    """The installed release of a library. Looked up when asked, because the looking takes a while to import."""
    from importlib.metadata import version

    return version(name)
