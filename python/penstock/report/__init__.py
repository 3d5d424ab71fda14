"""What recorded facts mean, computed once: screens only show it."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.report.accounts.ledger import ledger_of
    from penstock.report.run_evidence import ledger

__all__ = ["ledger", "ledger_of"]
_HOMES = {
    "ledger": "penstock.report.run_evidence",
    "ledger_of": "penstock.report.accounts.ledger",
}


def __getattr__(name: str) -> object:
    """Load the ledger when it is first asked for: the numbers behind it take as long to import as a small command takes."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
