"""Keys: made once, readable by their owner only, and the secret of a job follows from key, rendezvous id and endpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import KeyDamaged, KeyMissing, KeyUnsafe
from penstock.process.hosts.host_key import hkdf_sha256, job_secret, key_path, make_key, read_key


def test_the_derivation_is_that_of_the_standard() -> None:
    """Method: test case 1 and 3 of RFC 5869, appendix A."""
    key = bytes.fromhex("0b" * 22)
    first = hkdf_sha256(
        key,
        salt=bytes.fromhex("000102030405060708090a0b0c"),
        info=bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"),
        length=42,
    )
    assert first.hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    third = hkdf_sha256(key, salt=b"", info=b"", length=42)
    assert third.hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


def test_another_job_has_another_secret() -> None:
    key = bytes(range(32))
    secrets = {
        job_secret(key, rendezvous_id="a", endpoint="gpu01:29400"),
        job_secret(key, rendezvous_id="b", endpoint="gpu01:29400"),
        job_secret(key, rendezvous_id="a", endpoint="gpu01:29401"),
        job_secret(bytes(32), rendezvous_id="a", endpoint="gpu01:29400"),
    }
    assert len(secrets) == 4
    assert all(len(secret) == 32 for secret in secrets)
    assert job_secret(key, rendezvous_id="a", endpoint="gpu01:29400") in secrets


def test_a_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = key_path(tmp_path / "home", {})
    assert make_key(path) is True
    key = read_key(path)
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert make_key(path) is False
    assert read_key(path) == key
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]


def test_many_who_make_a_key_at_once_have_the_same_one(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from penstock.process.hosts.host_key import *; p = Path(sys.argv[1]); make_key(p); print(read_key(p).hex())"
    makers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "key")], stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    keys = {maker.communicate(timeout=60)[0] for maker in makers}
    assert len(keys) == 1
    assert len(keys.pop().strip()) == 64


def test_a_key_that_others_may_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    make_key(path)
    path.chmod(0o644)
    with pytest.raises(KeyUnsafe, match=r"can be read by others \(mode 0644\)") as caught:
        read_key(path)
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_foreign_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    make_key(path)
    os.chown(path, 12345, 12345)
    with pytest.raises(KeyUnsafe, match="belongs to user 12345"):
        read_key(path)


@pytest.mark.parametrize("content", ["", "no key\n", "ab" * 31, "zz" * 32, "ab" * 33])
def test_what_is_no_key_is_not_taken_for_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(KeyDamaged, match="64 hex digits"):
        read_key(path)


def test_without_a_key_the_commands_that_make_and_copy_one_are_shown(tmp_path: Path) -> None:
    with pytest.raises(KeyMissing) as caught:
        read_key(tmp_path / "key")
    assert "penstock hosts key" in str(caught.value.hint)
    assert "scp -p" in str(caught.value.hint)
    assert "--no-key" in str(caught.value.hint)
    assert key_path(tmp_path, {"PENSTOCK_KEY_FILE": "/elsewhere"}) == Path("/elsewhere")
