"""The stream that tests of runs train on."""

import pytest

from tests.torch.stream import Stream, make_stream


@pytest.fixture(scope="session")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))
