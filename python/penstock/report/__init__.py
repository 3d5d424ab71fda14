"""What recorded facts mean, computed once: screens only show it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.report.accounts.ledger import ledger_of

__all__ = ["ledger_of"]


def __getattr__(name: str) -> object:
    """Load the ledger when it is first asked for: the numbers behind it take as long to import as a small command takes."""
    if name in __all__:
        from penstock.report.accounts import ledger as home

        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
