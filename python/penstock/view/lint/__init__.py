"""Lint: mistakes that data makes late, just before the model, each with the place to look at.

``lint_batches`` checks what any loader gives; ``lint_stream`` checks what a recipe will give at any steps. Every kind of mistake has a
small file of its own here.
"""

from penstock.view.lint.checking import KINDS, LintReport, lint_batches, lint_stream
from penstock.view.lint.finding import Finding
from penstock.view.lint.given import Expected

__all__ = ["KINDS", "Expected", "Finding", "LintReport", "lint_batches", "lint_stream"]
