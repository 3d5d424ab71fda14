"""Good data of many kinds: lint has nothing to say of it, because what cries wolf is switched off."""

import pytest

from tests.view.lint.bench import Bench, Case
from tests.view.lint.healthy import HEALTHY


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_lint_has_nothing_to_say_of_good_data(case: Case, bench: Bench) -> None:
    """Goal: no false alarm. Method: a real recipe over real text, or batches of another loader; not even a warning."""
    report = case.make(bench)
    assert [(finding.kind, finding.sentence, finding.places) for finding in report.findings] == []
    assert report.batches > 0
