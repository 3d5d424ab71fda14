"""The commands that show what a view shows, to be copied. Addresses need no quotes; paths may."""

import shlex

from penstock.view.address import Address, RecipeAddress, VersionAddress
from penstock.view.wire.batch_answers import Commands


def commands_of(address: Address) -> Commands:
    """``command`` opens the view in a terminal; ``data_command`` prints the same as data, for other programs."""
    if isinstance(address, VersionAddress):
        row = "" if address.row is None else f" --rows {address.row}"
        data_command = f"penstock data rows {address.version}{row}"
    elif isinstance(address, RecipeAddress):
        place = address.place
        lane = "" if place.lane is None or place.lane.of == 1 else f" --lane {place.lane}"
        data_command = f"penstock data peek {shlex.quote(address.path)} --steps {place.step or 0}{lane}"
    else:
        data_command = f"penstock view {address} --json"
    return {"command": f"penstock view {address}", "data_command": data_command}
