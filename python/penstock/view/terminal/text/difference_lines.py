"""What differs between two versions, or between two batches of records, as lines to read."""

from penstock.errors import UsageError
from penstock.view.address import Address
from penstock.view.model.difference import compare_batches, compare_versions
from penstock.view.model.records import RecordView
from penstock.view.model.rows import VersionView
from penstock.view.opener import OpenedVersion, Opener
from penstock.view.terminal.text.styled_line import Line, StyledText
from penstock.view.text import difference_lines


def differences(opener: Opener, here: VersionView | RecordView, there: Address) -> list[Line]:
    """Both sides, how much differs, and the first place that does; called in a thread."""
    opened = opener.open(there)
    if isinstance(here, VersionView):
        if not isinstance(opened, OpenedVersion):
            raise UsageError("a version can be compared with another version only", hint="web@2, for example")
        comparison = compare_versions(here, opened)
    elif isinstance(opened, OpenedVersion):
        raise UsageError(
            "a batch can be compared with another batch only", hint="step=8, or recipe.toml#step=8"
        )
    else:
        comparison = compare_batches(here, opened.batch())
    return [[StyledText(line)] for line in difference_lines(comparison)]
