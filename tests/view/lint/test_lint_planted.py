"""Planted mistakes: each is found, costs something, and has an address that shows it."""

import json
import re

import pytest

from penstock.view.address import parse
from penstock.view.lint import KINDS
from penstock.view.opener import Opener
from tests.view.lint.bench import Bench, Case, kinds
from tests.view.lint.foreign import FOREIGN
from tests.view.lint.planted_mistakes import PLANTED


@pytest.mark.parametrize("case", [*PLANTED, *FOREIGN], ids=lambda case: case.name)
def test_a_planted_mistake_is_found(case: Case, bench: Bench) -> None:
    """Goal: what people get wrong is found, and nothing else is claimed. Method: good data with one mistake."""
    report = case.make(bench)
    shown = [(finding.kind, finding.sentence) for finding in report.findings]
    assert set(kinds(report)) == {case.kind, *case.follow}, shown
    finding = next(finding for finding in report.findings if finding.kind == case.kind)
    assert 0 < finding.cost <= 1, finding
    assert finding.hint
    assert any(character.isdigit() for character in finding.sentence)
    assert finding.places[0] == finding.address
    assert json.loads(json.dumps(report.to_json()))["tokens"] == report.tokens
    if case in PLANTED:
        # What an address names can be opened.
        for place in finding.places:
            opened = Opener(bench.registry).open(parse(place))
            assert opened is not None
    else:
        assert re.match(r"batch \d+, row \d+", finding.address)


def test_every_kind_is_planted() -> None:
    """Goal: no check that was never seen to work."""
    assert {case.kind for case in (*PLANTED, *FOREIGN)} == set(KINDS)
