"""Registries that one may only read: derived data is kept in a scratch, found by digest, and the place stays as it is."""

import os
import shutil
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli.main import main
from penstock.errors import AddressUnknown, RegistryReadOnly, StoreDenied, UsageError
from penstock.registry import Registry
from penstock.registry.tokenize.tokens import TokenLength
from tests.data.corpus import Corpus, some_documents
from tests.faulty.faults import Status
from tests.faulty.nginx import nginx
from tests.faulty.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with size and time of change."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_ctime_ns) for path in files
    }


@pytest.fixture
def own(tmp_path: Path) -> Corpus:
    """A registry with raw text and nothing derived."""
    corpus = Corpus(tmp_path / "corpus")
    corpus.add("web", some_documents(120, longest=30, seed=1), shards=3)
    return corpus


def recipe_of(corpus: Corpus, **more: object) -> ps.Recipe:
    return corpus.recipe(ps.Source("web@1", epochs=1), length=32, batch=2, **more)


def write_recipe(corpus: Corpus, path: Path) -> None:
    """The same recipe as a file."""
    path.write_text(
        f"""
        seed = 17
        batch = 2
        [[sources]]
        name = "web@1"
        epochs = 1
        [[stages]]
        kind = "tokenize"
        tokenizer = "{corpus.tokenizer}"
        [[stages]]
        kind = "pack"
        length = 32
        policy = "concat"
        """
    )


def digests(corpus: Corpus, registry: Registry, **more: object) -> list[str]:
    with ps.open(recipe_of(corpus, **more), registry=registry) as feed:
        return [str(batch.digest) for batch in feed]


@pytest.mark.parametrize("measure", ["all", "eras"])
def test_a_recipe_opens_over_a_place_that_is_only_read(own: Corpus, tmp_path: Path, measure: str) -> None:
    """Goal: plans, columns, eras and tokens are kept in the scratch and found there again; the place is not touched."""
    place, scratch = own.folder / "registry", tmp_path / "scratch"
    before = tree(place)
    expected = digests(own, Registry(place, scratch=scratch), measure=measure)
    kept = tree(scratch)
    assert tree(place) == before
    assert {name.partition("/")[0] for name in kept} >= {"columns", "objects", "derived", "plans", "datasets"}
    assert ("eras" in {name.partition("/")[0] for name in kept}) == (measure == "eras")
    assert digests(own, Registry(place, scratch=scratch), measure=measure) == expected
    assert (tree(scratch), tree(place)) == (kept, before), "the second opening made nothing"
    batch = ps.batch_at(recipe_of(own, measure=measure), step=3, registry=Registry(place, scratch=scratch))
    assert str(batch.digest) == expected[3]
    assert digests(own, Registry(place), measure=measure) == expected, (
        "and the writable registry gives the same"
    )


def test_what_the_place_has_is_not_made_again(own: Corpus, tmp_path: Path) -> None:
    """Goal: a shared registry's own columns and plans are used. Method: open there first, then with a scratch."""
    place, scratch = own.folder / "registry", tmp_path / "scratch"
    expected = digests(own, Registry(place))
    assert digests(own, Registry(place, scratch=scratch)) == expected
    assert tree(scratch) == {}


def test_numbers_are_the_places_and_derived_versions_are_found_by_digest(own: Corpus, tmp_path: Path) -> None:
    """Goal: equal numbers of one name never mix. Method: tokens of web@1 in the scratch, of web@2 in the place, both number 1."""
    place, scratch = own.folder / "registry", tmp_path / "scratch"
    expected = digests(own, Registry(place, scratch=scratch))
    eras = digests(own, Registry(place, scratch=scratch), measure="eras")
    raw = own.folder / "other.jsonl"
    shutil.copy(next(own.folder.glob("web/*.jsonl")), raw)
    writable = Registry(place)
    second = writable.register("web", [raw])
    other = own.recipe(ps.Source("web@2", epochs=1), length=32, batch=2)
    with ps.open(other, registry=writable) as feed:
        theirs = [str(batch.digest) for batch in feed]
        tokens = feed.plan.prepared[0].tokens
    assert (second.number, tokens.number) == (2, 1)
    layered = Registry(place, scratch=scratch)
    assert digests(own, layered) == expected
    assert digests(own, layered, measure="eras") == eras
    with ps.open(other, registry=layered) as feed:
        assert [str(batch.digest) for batch in feed] == theirs
    assert layered.resolve(tokens.address).digest == tokens.digest
    with ps.open(recipe_of(own), registry=layered) as feed:
        ours = feed.plan.prepared[0].tokens
    assert "@b3:" in ours.address
    assert layered.resolve(ours.address).digest == ours.digest != tokens.digest


def test_changing_a_registry_that_is_only_read_is_refused(own: Corpus, tmp_path: Path) -> None:
    """Goal: names are the place's alone. Method: everything that would change them; only a relocation is for oneself."""
    place = own.folder / "registry"
    before = tree(place)
    registry = Registry(place, scratch=tmp_path / "scratch")
    raw = own.folder / "more.jsonl"
    raw.write_text('{"text": "1 2 3"}\n')
    with pytest.raises(RegistryReadOnly, match="cannot register in") as refused:
        registry.register("more", [raw])
    assert refused.value.verb == "register"
    assert refused.value.hint
    with pytest.raises(RegistryReadOnly, match="cannot tag in"):
        registry.tag("web@1", "gold")
    with pytest.raises(RegistryReadOnly):
        registry.export("web@1", "mds", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="must not be the registry itself"):
        Registry(place, scratch=place)
    with pytest.raises(UsageError, match="directory of this machine"):
        Registry(place, scratch="s3://bucket/scratch")
    moved = tmp_path / "moved"
    shutil.copytree(Path(registry.resolve("web@1").roots[0].removeprefix("file://")), moved)
    root = registry.resolve("web@1").roots[0]
    assert registry.relocate("web@1", {root: str(moved)}).roots == (f"file://{moved}", root)
    assert Registry(place, scratch=tmp_path / "scratch").resolve("web@1").roots[0] == f"file://{moved}"
    assert Registry(place).resolve("web@1").roots == (root,)
    assert tree(place) == before


def test_a_copy_that_the_place_lost_is_made_in_the_scratch(own: Corpus, tmp_path: Path) -> None:
    """Goal: reading a pruned copy works without writing to the place. Method: gzip, whose rows are read from a copy."""
    import gzip

    packed = own.folder / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"text": "1"}\n{"text": "2"}\n'))
    place = own.folder / "registry"
    version = Registry(place).register("packed", [packed])
    names = [copy.name for copy in Registry(place).derived()]
    assert Registry(place).prune(names) > 0
    before = tree(place)
    layered = Registry(place, scratch=tmp_path / "scratch")
    assert layered.resolve(version.address)[1] == {"text": "2"}
    assert tree(place) == before
    assert layered.prune(names) > 0


@pytest.fixture
def proxy(s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    assert s3_bucket
    with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


def test_keys_that_may_only_read_get_a_scratch_at_home(
    own: Corpus, tmp_path: Path, s3_bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: read-only keys open new plans. Method: a real S3 server behind a proxy that answers 403 to every write."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    place = f"{s3_bucket}/{uuid.uuid4().hex}"
    files = sorted(own.folder.glob("web/*.jsonl"))
    assert Registry(place).register("web", files).rows == 120
    proxy.add(Status(403), method="PUT")
    proxy.add(Status(403), method="POST")
    expected = digests(own, Registry(place))
    (scratch,) = (tmp_path / "home" / "scratch").iterdir()
    kept = tree(scratch)
    proxy.forget()
    assert digests(own, Registry(place)) == expected
    assert (tree(scratch), proxy.requests(method="PUT")) == (kept, [])
    with pytest.raises(RegistryReadOnly, match="cannot register in s3://") as refused:
        Registry(place).register("more", files)
    assert isinstance(refused.value.__cause__, StoreDenied)
    column = Registry(place).measure("web", TokenLength(own.tokenizer))
    assert len(Registry(place).values(column)) == 120
    assert len(Registry(place).payload(Registry(place).resolve("web"), column)) == 120


_AS_READER = """
    import os, sys
    from pathlib import Path
    import penstock as ps
    from penstock.errors import RegistryReadOnly
    place, recipe = sys.argv[1:]
    assert not os.access(f"{place}/objects", os.W_OK)
    registry = ps.Registry(place)
    with ps.open(ps.Recipe.load(recipe), registry=registry) as feed:
        print(next(iter(feed)).digest)
    try:
        registry.register("more", [recipe])
    except RegistryReadOnly as problem:
        print(problem)
"""


@pytest.mark.parametrize("top", [0o555, 0o777], ids=["closed", "folders of others"])
def test_a_directory_that_may_not_be_written_gets_a_scratch_at_home(
    own: Corpus, tmp_path: Path, top: int
) -> None:
    """Goal: the same for a directory. Method: a process without the right to write there, even as root; also where everybody may
    make folders, but those that are there belong to another."""
    place, home = own.folder / "registry", tmp_path / "home"
    recipe = tmp_path / "recipe.toml"
    write_recipe(own, recipe)
    expected = digests(own, Registry(place, scratch=tmp_path / "other"))[0]
    folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(top if folder == place else 0o555)
    try:
        drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        command = [*drop, sys.executable, "-c", textwrap.dedent(_AS_READER), str(place), str(recipe)]
        environment = {**os.environ, "PENSTOCK_HOME": str(home)}
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    first, refused = ran.stdout.splitlines()
    assert first == str(expected)
    assert refused.startswith("cannot register in file://")
    assert tree(home / "scratch")


def test_a_web_server_is_a_registry_that_lists_nothing(
    own: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a registry behind plain https is of use. Method: a real web server that refuses to list; versions, tags and plans are
    found by name, and what would need a list says so."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    expected = digests(own, Registry(own.folder / "registry", scratch=tmp_path / "other"))
    for number in range(2, 8):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"id": {number}}}\n')
        own.registry.register("web", tmp_path / f"{number}.jsonl")
    own.registry.tag("web@3", "gold")
    with nginx(own.folder, tmp_path / "nginx") as url:
        far = Registry(f"{url}/registry")
        addresses = ("web", "web@3", "web@gold", f"web@{own.registry.resolve('web@5').digest}")
        assert [far.resolve(address).number for address in addresses] == [7, 3, 3, 5]
        assert [version.number for version in far.versions("web")] == list(range(1, 8))
        assert digests(own, far) == expected
        for address in ("web@8", "web@silver", "nothing"):
            with pytest.raises(AddressUnknown):
                far.resolve(address)
        with pytest.raises(UsageError, match="does not list its datasets"):
            far.datasets()
        assert far.lineage("web@1").parents == []
        assert far.derived()
        assert main(["data", "show", "web@3", "--registry", far.url]) == 0
        assert "web@3" in capsys.readouterr().out


def test_commands_take_a_scratch(own: Corpus, tmp_path: Path) -> None:
    """Goal: `--scratch` where there is `--registry`. Method: peek, lint and view over one scratch; register says why not."""
    place, scratch, recipe = own.folder / "registry", tmp_path / "scratch", tmp_path / "recipe.toml"
    write_recipe(own, recipe)
    before = tree(place)

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [
            str(Path(sys.executable).with_name("penstock")),
            *words,
            "--registry",
            str(place),
            "--scratch",
            str(scratch),
        ]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert run("data", "peek", str(recipe), "--json").returncode == 0
    kept = tree(scratch)
    assert kept
    assert run("data", "lint", str(recipe), "--json").returncode in (0, 1)
    assert run("view", f"{recipe}#step=1", "--text").returncode == 0
    assert (tree(scratch), tree(place)) == (kept, before)
    refused = run("data", "register", "more", str(recipe))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "cannot register in" in refused.stderr
    assert "Traceback" not in refused.stderr
