"""The scenes of ``penstock demo``; one file each."""

from penstock.errors import PenstockError


class DemoFailed(PenstockError):
    """The demo found something other than what it promises to show."""

    hint = "this is a defect of Penstock or of the machine; `penstock doctor` looks at the latter"
    exit_code = 1


def insist(claim: str, *, holds: bool) -> None:
    """A claim of the demo, checked."""
    if not holds:
        raise DemoFailed(f"the demo promises that {claim}, and that is not so")
