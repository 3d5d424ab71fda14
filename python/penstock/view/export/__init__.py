"""Views as single files of HTML that open offline."""

from penstock.view.export.html import (
    batch_page,
    difference_page,
    lint_page,
    record_page,
    stage_page,
    version_page,
)

__all__ = ["batch_page", "difference_page", "lint_page", "record_page", "stage_page", "version_page"]
