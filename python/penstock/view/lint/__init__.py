"""Lint: mistakes that data makes late, just before the model, each with what it costs and the place to look at.

``lint_batches`` checks what any loader gives; ``lint_stream`` checks what a recipe will give at any steps. Both make a
``CheckedBatch`` of each batch, with the pieces of its documents, and ``checks`` look at them.
"""

from penstock.view.lint.checks.contamination import texts_of
from penstock.view.lint.expectation import Expected
from penstock.view.lint.finding import Finding
from penstock.view.lint.kinds import KINDS
from penstock.view.lint.report import LintReport, lint_batches
from penstock.view.lint.stream import lint_stream

__all__ = ["KINDS", "Expected", "Finding", "LintReport", "lint_batches", "lint_stream", "texts_of"]
