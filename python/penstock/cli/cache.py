"""``penstock cache``: what this host keeps of far objects. Deleting it changes speed only."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.output import Json, command_app, print_facts, print_json, print_table, say
from penstock.cli.progress import progress
from penstock.errors import CacheUnusable, UsageError
from penstock.report.quantities import size
from penstock.store.hostcache import CachePlace, cache_place

if TYPE_CHECKING:
    from penstock._rust import HostCache

app = command_app(
    "cache",
    "Show, verify, trim and clear what this host keeps of far objects; deleting it changes speed only.",
    examples=(
        "  penstock cache show\n"
        "  penstock cache verify --json\n"
        "  penstock cache trim 50G\n"
        "  PENSTOCK_CACHE=/mnt/nvme/penstock penstock cache clear"
    ),
)


def _place() -> CachePlace:
    place = cache_place()
    if place is None:
        raise UsageError(
            "this host uses no cache: PENSTOCK_CACHE is off", hint="unset it, or name a directory"
        )
    return place


def _open() -> "HostCache":
    place = _place()
    try:
        return place.open()
    except OSError as reason:
        raise CacheUnusable(place=str(place.root), reason=str(reason)) from reason


@app.command(sort_key=0)
def show(*, json: Json = False) -> int:
    """Show where the cache is, how much it holds and may hold, and how often it had what was asked for."""
    from penstock._rust import disk_room

    cache = _open()
    held, pieces, objects = cache.show()
    disk, free = disk_room(cache.root) or (0, 0)
    counted = dict(cache.ledger())
    document = {
        "place": str(cache.root),
        "bytes": held,
        "limit_bytes": cache.limit_bytes,
        "pieces": pieces,
        "objects": objects,
        "disk_bytes": disk,
        "disk_free_bytes": free,
        **{
            name: counted[name]
            for name in ("hits", "misses", "evicted", "rotten", "skipped", "fetched_bytes")
        },
    }
    if json:
        print_json(document)
        return 0
    asked = counted["hits"] + counted["misses"]
    print_facts(
        {
            "place": cache.root,
            "holds": f"{size(held)} of {size(cache.limit_bytes)}: {pieces:,} pieces, {objects:,} objects",
            "disk": f"{held / disk:.1%} of {size(disk)}, of which {size(free)} are free" if disk else "",
            "hits": f"{counted['hits']:,} of {asked:,} ({counted['hits'] / asked:.1%})"
            if asked
            else "none yet",
            "fetched": size(counted["fetched_bytes"]),
            "evicted": f"{counted['evicted']:,}",
            "rotten": f"{counted['rotten']:,}",
            "not written": f"{counted['skipped']:,} (no room)" if counted["skipped"] else "",
        }
    )
    return 0


@app.command(sort_key=1)
def verify(*, json: Json = False) -> int:
    """Read everything in the cache and drop what is rotten. Exit code 1 if something was."""
    cache = _open()
    total, _, _ = cache.show()
    done = 0
    with progress("verifying the cache", "bytes", quiet=json) as tell:

        def watch(count: int) -> None:
            nonlocal done
            done += count
            tell(done, max(total, done, 1))

        files, read, rotten = cache.verify(watch)
    if json:
        print_json({"files": files, "bytes": read, "rotten": [str(path) for path in rotten]})
    elif rotten:
        print_table(["rotten, and dropped"], [[path.relative_to(cache.root)] for path in rotten])
    else:
        say(f"all of {files:,} files ({size(read)}) are what was written")
    return 1 if rotten else 0


@app.command(sort_key=2)
def trim(
    to: Annotated[str, Parameter(help="What may stay: 50G, 800M, or a share of the disk as 10%.")],
    *,
    json: Json = False,
) -> int:
    """Remove what was not used for longest until the cache is no larger than this. Whoever reads it just now is not disturbed."""
    from penstock._rust import parse_size

    goal = 0 if to == "0" else parse_size(to, _place().root)
    if goal is None:
        raise UsageError(f"{to!r} is not a size", hint="give a size, as 50G, 800M or 10%")
    cache = _open()
    freed = cache.trim(goal)
    if freed is None:
        raise CacheUnusable(place=str(cache.root), reason="another process is making room there just now")
    return _freed(cache, freed, json=json)


@app.command(sort_key=3)
def clear(*, json: Json = False) -> int:
    """Remove everything in the cache. Whoever reads it just now is not disturbed."""
    cache = _open()
    return _freed(cache, cache.clear(), json=json)


def _freed(cache: "HostCache", freed: int, *, json: bool) -> int:
    left, _, _ = cache.show()
    if json:
        print_json({"freed_bytes": freed, "bytes": left})
    else:
        say(f"{size(freed)} removed, {size(left)} are left")
    return 0
