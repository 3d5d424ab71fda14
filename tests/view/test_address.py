"""Addresses: one text for everything that can be looked at, in a shell, in a browser and in Python."""

import shlex
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.feed.lane import Lane
from penstock.errors import AddressInvalid
from penstock.view.address import (
    Address,
    Place,
    RecipeAddress,
    RunAddress,
    RunsAddress,
    VersionAddress,
    at,
    in_url,
    parse,
    parse_runs,
)

NUMBERS = st.integers(0, (1 << 63) - 1)
PATHS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=40)
LANES = st.integers(1, 512).flatmap(lambda of: st.integers(0, of - 1).map(lambda n: Lane(n, of=of)))


@st.composite
def places(draw: st.DrawFn) -> Place:
    """Any place that can be written."""
    row = draw(st.none() | NUMBERS)
    token = draw(st.none() | NUMBERS) if row is not None else None
    return Place(draw(st.none() | NUMBERS), draw(st.none() | LANES), row, token)


ADDRESSES = st.one_of(
    st.builds(VersionAddress, st.sampled_from(["web", "org/web.v2", "web@3"])),
    st.builds(VersionAddress, st.sampled_from(["org/web@gold", "web@b3:4f2a"]), NUMBERS),
    st.builds(RecipeAddress, PATHS.map(lambda path: f"./{path}.toml"), places()),
    st.builds(RunAddress, PATHS, places()),
)


@given(ADDRESSES)
def test_an_address_is_read_as_it_was_written_in_a_shell_and_in_a_url(address: Address) -> None:
    """Goal: one language everywhere. Method: whatever the path holds, through a shell's splitting and a browser's URL."""
    text = str(address)
    assert parse(text) == address
    assert shlex.split(f"penstock view {text}", comments=False)[2:] == [text]
    assert text.isascii()
    assert not set(text) & set(" \"'`$&|;<>()*?[]{}!~\\^\n\t")
    url = f"http://127.0.0.1:8090/user/x/?token=abc{in_url(address)}?colour=mask"
    assert parse(url) == address
    assert urlsplit(url).path == "/user/x/"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("web", VersionAddress("web")),
        ("web@3", VersionAddress("web@3")),
        ("web@3/row/17", VersionAddress("web@3", 17)),
        ("org/row/17", VersionAddress("org/row/17")),
        ("web@v2.toml", VersionAddress("web@v2.toml")),
        ("./web@v2.toml", RecipeAddress("./web@v2.toml")),
        ("R.TOML#step=7", RecipeAddress("R.TOML", Place(step=7))),
        ("a%20b/r.toml#step=7", RecipeAddress("a b/r.toml", Place(step=7))),
        (
            "recipe.toml#step=41207,lane=3/8,row=5,token=120",
            RecipeAddress("recipe.toml", Place(41207, Lane(3, of=8), 5, 120)),
        ),
        ("run:runs/exp1", RunAddress("runs/exp1")),
        ("run:exp1#step=3", RunAddress("exp1", Place(step=3))),
        ("#/a/web%403/row/2", VersionAddress("web@3", 2)),
    ],
)
def test_addresses_people_write_mean_what_they_say(text: str, address: Address) -> None:
    assert parse(text) == address


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("web@3/row/x", "neither a version"),
        ("web@3#step=1", "neither a recipe"),
        ("recipe.toml#", "nothing follows"),
        ("recipe.toml#step", "none of step"),
        ("recipe.toml#step=-1", "step must be a whole number from 0"),
        ("recipe.toml#step=1,step=2", "twice"),
        ("recipe.toml#lane=8/8", "below 8, the number of lanes, got 8"),
        ("recipe.toml#token=3", "needs row="),
        ("recipe.toml#step=99999999999999999999", "step must be a whole number from 0"),
        ("run:", "its path is empty"),
        ("run:%ff", "its path is empty"),
        ("http://localhost/x", "shows no address"),
        ("w" * 5000, "5,000 characters"),
        ("<script>alert(1)</script>", "neither a version"),
    ],
)
def test_what_is_no_address_is_refused_with_a_hint(text: str, reason: str) -> None:
    with pytest.raises(AddressInvalid, match=reason) as caught:
        parse(text)
    assert "web@3" in str(caught.value.hint)


def test_another_place_of_the_same_stream() -> None:
    address = parse("recipe.toml#step=7,lane=3/8,row=5")
    assert isinstance(address, RecipeAddress)
    assert str(at(address, step=8, row=None)) == "recipe.toml#step=8,lane=3/8"


def test_a_folder_of_runs_has_an_address_that_only_a_browser_shows() -> None:
    for folder in ("runs", "a b/<c>", "100%~"):
        assert parse_runs(str(RunsAddress(folder))) == RunsAddress(folder)
        assert parse_runs(f"http://box:8090/{in_url(RunsAddress(folder))}?group=seed") == RunsAddress(folder)
    assert parse_runs("run:runs/exp1") is None
    assert parse_runs("web@3") is None
    with pytest.raises(AddressInvalid, match="its path is empty"):
        parse_runs("runs:")
    with pytest.raises(AddressInvalid, match="only a browser shows several"):
        parse("runs:runs")
