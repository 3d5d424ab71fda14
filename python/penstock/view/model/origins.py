"""Where rows came from, as answers have it."""

from typing import cast

from penstock.data.feed.batch import Origin
from penstock.view.wire.batch_answers import OriginFacts


def origin_facts(origin: Origin) -> OriginFacts:
    """An origin as plain values; its fields are those of the declaration, which the tests of every answer hold it to."""
    return cast(OriginFacts, origin.to_json())
