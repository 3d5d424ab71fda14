"""https with a private certificate authority: a real server whose certificate only that authority vouches for."""

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.errors import StoreFailed
from penstock.store import Limits
from penstock.store.remote import RemoteStore
from tests.faulty.nginx import nginx

QUICK = Limits(tries=2, pause_s=0.001, pause_max_s=0.01)


def name_of(words: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])


def begun(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name_of(subject))
        .issuer_name(name_of(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
    )


def write_pem(path: Path, item: x509.Certificate | ec.EllipticCurvePrivateKey) -> Path:
    if isinstance(item, x509.Certificate):
        data = item.public_bytes(serialization.Encoding.PEM)
    else:
        form, locked = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        data = item.private_bytes(serialization.Encoding.PEM, form, locked)
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Files with the authority's certificate, and with certificate and key of a server on this machine."""
    folder = tmp_path_factory.mktemp("authority")
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = begun("Our Authority", "Our Authority", root_key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    server = begun("127.0.0.1", "Our Authority", key).add_extension(
        x509.SubjectAlternativeName([address]), critical=False
    )
    return (
        write_pem(folder / "authority.pem", root.sign(root_key, hashes.SHA256())),
        write_pem(folder / "server.pem", server.sign(root_key, hashes.SHA256())),
        write_pem(folder / "key.pem", key),
    )


@pytest.fixture(scope="module")
def web(authority: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "a.bin").write_bytes(b"private bytes")
    with nginx(folder, tmp_path_factory.mktemp("nginx"), certificate=authority[1:]) as url:
        yield url


def test_a_private_authority_is_trusted_when_it_is_named(
    web: str, authority: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: neither open to everybody nor closed to the private server. Method: without the file, with the option, with the variable."""
    assert web.startswith("https://")
    with pytest.raises(StoreFailed):
        RemoteStore(web, limits=QUICK).get("a.bin")
    trusting = RemoteStore(web, options={"ca_bundle": str(authority[0])}, limits=QUICK)
    assert trusting.get("a.bin") == b"private bytes"
    monkeypatch.setenv("PENSTOCK_STORE_CA_BUNDLE", str(authority[0]))
    assert RemoteStore(web, limits=QUICK).get_range("a.bin", 8, 5) == b"bytes"


def test_a_file_without_certificates_is_named(web: str, tmp_path: Path) -> None:
    """Goal: a wrong path is said at once, with the path. Method: a file that is not there, and one of other words."""
    other = tmp_path / "words.pem"
    other.write_text("no certificate")
    for file in (tmp_path / "gone.pem", other):
        with pytest.raises(StoreFailed, match=file.name):
            RemoteStore(web, options={"ca_bundle": str(file)})
