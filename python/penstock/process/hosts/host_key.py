"""The key that hosts of one owner share, and the secret of a job that is made from it.

The key is a file of 64 hex digits, readable by its owner only. A job never sees it: each host derives the job's secret from key,
rendezvous id and endpoint (HKDF, RFC 5869), so a secret that leaks opens one job and no other. Secrets are never in arguments,
environments, logs or ``job.json``.
"""

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from penstock.errors.process import KeyDamaged, KeyMissing, KeyUnsafe

VARIABLE = "PENSTOCK_KEY_FILE"
KEY_BYTES = 32
#: What stands in for a key with ``--no-key``: known to everyone, so it keeps nobody out.
OPEN_KEY = hashlib.sha256(b"penstock without a key").digest()


def key_path(home: Path, environment: Mapping[str, str]) -> Path:
    """Where the key is."""
    named = environment.get(VARIABLE)
    return Path(named).expanduser() if named else home / "key"


def make_key(path: Path) -> bool:
    """Make a key unless there is one; whether it was made now. Two who make it at once get the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(number, "w") as file:
            file.write(os.urandom(KEY_BYTES).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        # A link fails where the name is taken, as O_EXCL does, and the file is whole when it has its name.
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    return True


def read_key(path: Path) -> bytes:
    """The key, if it is one, ours, and readable by no one else."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise KeyMissing(path=path) from None
    except OSError as problem:
        raise KeyUnsafe(path=path, reason=f"cannot be read: {problem.strerror}") from problem
    with open(number, "rb") as file:
        status = os.fstat(number)
        if status.st_uid not in (os.geteuid(), 0):
            raise KeyUnsafe(
                path=path, reason=f"belongs to user {status.st_uid}, and we are user {os.geteuid()}"
            )
        if not stat.S_ISREG(status.st_mode):
            raise KeyUnsafe(path=path, reason="is not a file")
        if status.st_mode & 0o077:
            raise KeyUnsafe(
                path=path,
                reason=f"can be read by others (mode {stat.S_IMODE(status.st_mode):04o})",
                hint=f"chmod 600 {path}",
            )
        text = file.read(4096)
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyDamaged(path=path, reason=f"must hold {2 * KEY_BYTES} hex digits")
    return key


def job_secret(key: bytes, *, rendezvous_id: str, endpoint: str) -> bytes:
    """The secret of one job: HKDF-SHA256 of the key, with the rendezvous id as salt."""
    return hkdf_sha256(key, salt=rendezvous_id.encode(), info=b"penstock join " + endpoint.encode())


def hkdf_sha256(key: bytes, *, salt: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """RFC 5869: extract, then expand."""
    assert 0 < length <= 255 * 32, "HKDF-SHA256 gives at most 8,160 bytes"
    extracted = hmac.new(salt or bytes(32), key, hashlib.sha256).digest()
    output, block = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.new(extracted, block + info + bytes([counter]), hashlib.sha256).digest()
        output += block
    return output[:length]
