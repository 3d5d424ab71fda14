"""The API reference shows every public name, and each of them says what it is."""

import re

import griffe

from tests.conftest import ROOT

PAGES = sorted((ROOT / "docs/reference/api").glob("*.md"))
#: Modules whose ``__all__`` is a promise.
MODULES = ("data", "errors", "events", "jax", "process", "registry", "run", "state", "torch")
#: Modules that have a page, their root, which is on it, and a string.
_ELSEWHERE = {"errors", "events", "PenstockError", "__version__"}
_SHOWN = re.compile(r"^::: penstock\.(\S+)$", re.MULTILINE)


def test_every_public_name_is_in_the_api_reference_and_documented() -> None:
    """Read and not imported, as the pages are made: what resolves here resolves there, without any framework."""
    package = griffe.load(
        "penstock",
        search_paths=[ROOT / "python"],
        extensions=griffe.load_extensions("griffe_sphinx"),
        allow_inspection=False,
        resolve_aliases=True,
    )
    shown = [name for page in PAGES for name in _SHOWN.findall(page.read_text())]
    # A name that several modules give is shown once, and one of the top there.
    shown_paths = {package[name].canonical_path for name in shown}
    rooms = {
        f"{module}.{name}": defined(package[f"{module}.{name}"], str(name)).canonical_path
        for module in MODULES
        for name in package[module].exports
    }

    assert sorted(set(package.exports) - _ELSEWHERE - set(shown)) == []
    assert [name for name, path in rooms.items() if path not in shown_paths] == []
    assert sorted({name for name in shown if shown.count(name) > 1}) == []
    assert [name for name in shown if package[name].docstring is None] == []
    # A function that is called like its module would be shown as the module.
    assert [name for name in shown if package[name].is_module] == ["errors"]


def defined(item: griffe.Object | griffe.Alias, name: str) -> griffe.Object | griffe.Alias:
    """What users get: of ``penstock.torch.loader`` the function, not the module that it hides."""
    return item[name] if item.is_module else item
