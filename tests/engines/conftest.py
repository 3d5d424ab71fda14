"""These tests need a real Kubernetes, which `make engines` builds; the ordinary suite leaves them out."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.kubernetes_cluster import CHECKOUT, KubernetesCluster, kubernetes_cluster

NODES = 3
collect_ignore_glob = [] if os.environ.get("PENSTOCK_ENGINES") else ["test_*.py"]
sys.path.insert(0, str(CHECKOUT / "workshop"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """One control plane and three nodes for all tests."""
    import engines

    executable = engines.kubernetes()
    assert executable.exists(), "`make engines` builds it"
    assert not engines.missing_packages(), "`make engines` installs them"
    assert shutil.which("containerd")
    folder = tmp_path_factory.mktemp("kubernetes")
    with kubernetes_cluster(folder, executable, NODES) as found:
        yield found
    shutil.rmtree(Path(folder), ignore_errors=True)
