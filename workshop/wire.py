"""Makes of the declared answers what the pages are compiled with: ``web/src/wire/types.ts`` and ``web/src/wire/schema.json``.

``make wire`` after a declaration in ``penstock.view.wire`` has changed. ``--into FOLDER`` writes elsewhere, so that a test can compare.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.view.wire.schema import for_pages, schema

ROOT = Path(__file__).parent.parent
WIRE = ROOT / "web/src/wire"
_BANNER = "// Generated from the declarations in python/penstock/view/wire by `make wire`: change those, not this.\n"
#: TypeScript of the width that the pages have, without a banner of the generator's own.
_GENERATOR = ("--bannerComment", "", "--style.printWidth=140")


def main() -> None:
    """Write both files."""
    into = Path(sys.argv[sys.argv.index("--into") + 1]) if "--into" in sys.argv else WIRE
    into.mkdir(parents=True, exist_ok=True)
    document = schema()
    (into / "types.ts").write_text(_BANNER + "\n" + types_of(document))
    (into / "schema.json").write_text(compact(for_pages(document)))


def compact(document: dict[str, Any]) -> str:
    """A schema as pages carry it to check answers, one definition on a line."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(definition)}"
        for name, definition in document.pop("definitions").items()
    ]
    head = json.dumps(document)[:-1]
    return head + ', "definitions": {\n' + ",\n".join(lines) + "\n}}\n"


def types_of(document: dict[str, object]) -> str:
    """The TypeScript of a schema, made by json-schema-to-typescript."""
    command = ["node_modules/.bin/json2ts", *_GENERATOR]
    done = subprocess.run(
        command,
        cwd=ROOT / "web",
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode != 0:
        sys.exit(f"json-schema-to-typescript failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.lstrip("\n")


if __name__ == "__main__":
    main()
