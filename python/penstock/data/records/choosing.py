"""Which sources are read as records: those whose samples are no tokens and are not made into tokens."""

from collections.abc import Sequence

from penstock.data.stages import Filter, Map, Stage
from penstock.errors import RecipeInvalid
from penstock.registry import Version

#: Formats whose rows are tokens already.
TOKEN_FORMATS = ("tokens", "megatron", "npy", "flat")


def reads_records(stages: Sequence[Stage], version: Version) -> bool:
    """Whether a version is read as records, which follows from its format and the stages."""
    if version.manifest.format in TOKEN_FORMATS or not all(
        isinstance(stage, Filter | Map) for stage in stages
    ):
        return False
    maps = [stage for stage in stages if isinstance(stage, Map)]
    if not maps and any(field.name == "valid" for field in version.schema):
        reason = f"{version.address} has a field 'valid', which batches of records have themselves"
        raise RecipeInvalid(field="sources", reason=reason, hint="give the field another name with a Map")
    for stage in maps:
        if stage.length_max is not None:
            reason = f"{version.address} is read as records, which have no length in tokens"
            raise RecipeInvalid(field="length_max", reason=reason, hint="leave it out")
    return True
