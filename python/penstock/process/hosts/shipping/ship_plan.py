"""What ``--ship DIR`` means for the hosts of a job: one host has the directory packed, and every host runs its ranks in a copy of its own."""

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from penstock.errors.process import DirectoryUnshippable, HostsMissing
from penstock.errors.root import UsageError
from penstock.process.hosts.shipping.packed_directory import Packed, pack
from penstock.process.hosts.ssh.ssh_login import SSH
from penstock.process.job.spec import JobSpec

#: A packed directory may take so long to the first host.
UPLOAD_S = 600.0
#: Where it goes there, before the host takes it to the job; its path is the answer.
_RECEIVE = (
    'umask 077; d="$HOME/.cache/penstock/ships"; mkdir -p "$d" && f="$d/{name}" && cat > "$f" && echo "$f"'
)


@dataclass(frozen=True)
class ShipPlan:
    """A directory that is sent, and where ranks run in its copy."""

    directory: Path
    #: Below the directory.
    place: str

    @classmethod
    def of(cls, directory: str, spec: JobSpec, *, has_it: bool = True) -> "ShipPlan":
        """What was asked for; ``has_it``: this host has the directory."""
        root = Path(directory).absolute()
        if any(role.directory is not None and role.directory != spec.directory for role in spec.roles):
            raise UsageError("--ship has one working directory for all roles", hint="leave `directory` out")
        inside = os.path.relpath(spec.directory.resolve(), root.resolve())
        if inside == ".." or inside.startswith("../"):
            if has_it:
                raise UsageError(
                    f"--ship {directory}: ranks would run in {spec.directory}, which is not in it",
                    hint="start inside of it, or name one that has it",
                )
            inside = ""
        return cls(root, "" if inside == "." else inside)

    def pack(self, folder: Path) -> Packed:
        """The packed directory, as a file in a folder."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return pack(self.directory, folder / f".ship-{os.urandom(6).hex()}", place=self.place)


def upload(host: str, packed: Packed) -> str:
    """Bring a packed directory to the first host by ssh; where it is there."""
    script = _RECEIVE.format(name=f"{packed.digest[:16]}-{os.urandom(4).hex()}")
    command = [*SSH, host, f"exec sh -c {shlex.quote(script)}"]
    try:
        with packed.path.open("rb") as file:
            done = subprocess.run(command, stdin=file, capture_output=True, timeout=UPLOAD_S, check=False)
    except subprocess.TimeoutExpired as problem:
        raise DirectoryUnshippable(
            directory=packed.path, problems=[f"{host} did not take it within {UPLOAD_S:.0f} s"]
        ) from problem
    path = done.stdout.decode(errors="replace").strip()
    if done.returncode != 0 or not path.startswith("/"):
        words = done.stderr.decode(errors="replace").strip() or f"the login ended with {done.returncode}"
        raise HostsMissing(asked=1, here=0, problems={host: words.splitlines()[-1]})
    return path
