"""Which sources are read as records: those whose samples are no tokens and are not made into tokens."""

from collections.abc import Sequence

from penstock.data.recipe.fields import check_fields
from penstock.data.stages import Filter, Map, Stage
from penstock.errors import RecipeInvalid
from penstock.registry import Version

#: Formats whose rows are tokens already.
TOKEN_FORMATS = ("tokens", "megatron", "npy", "flat")


def reads_records(stages: Sequence[Stage], version: Version, fields: tuple[str, ...] | None = None) -> bool:
    """Whether a version is read as records, which follows from its format and the stages. ``fields`` are those that are read."""
    if version.manifest.format in TOKEN_FORMATS or not all(
        isinstance(stage, Filter | Map) for stage in stages
    ):
        if fields is not None:
            reason = f"{version.address} is read as tokens, which have no fields to choose from"
            raise RecipeInvalid(field="fields", reason=reason, hint="leave it out")
        return False
    if fields is not None:
        check_fields(fields, version)
    maps = [stage for stage in stages if isinstance(stage, Map)]
    names = [field.name for field in version.schema] if fields is None else fields
    if not maps and "valid" in names:
        reason = f"{version.address} has a field 'valid', which batches of records have themselves"
        raise RecipeInvalid(
            field="sources",
            reason=reason,
            hint="give the field another name with a Map, or leave it out with fields=",
        )
    for stage in maps:
        if stage.length_max is not None:
            reason = f"{version.address} is read as records, which have no length in tokens"
            raise RecipeInvalid(field="length_max", reason=reason, hint="leave it out")
    return True
