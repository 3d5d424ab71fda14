"""What a client has to know of a plan, as a document: enough for batches, cursors and statistics, without the registry.

Its identity is a digest of all that decides batches. A client names it with every request, so a server of another recipe, version
or list of skips refuses instead of sending something else.
"""

from typing import Any

import msgspec

from penstock import _rust
from penstock.data.plan.plan import Plan
from penstock.data.recipe.recipe import Recipe


def plan_document(plan: Plan) -> dict[str, Any]:
    """The document of a plan."""
    recipe = plan.recipe
    deciding: dict[str, Any] = {
        "recipe": {
            "digest": recipe.digest,
            "seed": recipe.seed,
            "batch": recipe.batch_schedule,
            "shuffle": recipe.shuffle,
            "exhaustion": recipe.exhaustion,
            "undecodable": recipe.undecodable,
            "undecodable_max": recipe.undecodable_max,
        },
        "sources": [
            {
                "name": prepared.source.name,
                "alias": prepared.source.alias,
                "epochs": prepared.source.epochs,
                "address": prepared.version.address,
                "digest": prepared.version.digest,
                "dtype": prepared.dtype.str,
                "shards": [shard.rows for shard in prepared.version.manifest.shards],
            }
            for prepared in plan.prepared
        ],
        "lengths": plan.lengths,
        "records": plan.records,
        "drawn": plan.drawn,
        "skips": plan.skips.to_json(),
        "cursors": [(step, plan.prefix(step), plan.digest(step)) for step in _changing_steps(plan)],
    }
    identity = _rust.digest(msgspec.json.encode(deciding, order="deterministic"))
    protocol, layout = _rust.ServiceClient.protocol()
    about = {
        "protocol": protocol,
        "layout": layout,
        "penstock": _rust.__version__,
        "identity": identity,
        "lanes": "the rows of a step are dealt to lanes in equal stretches, in order",
    }
    return about | deciding


def _changing_steps(plan: Plan) -> list[int]:
    """Steps from which on cursors name something else: a schedule counts from the step after the one at which it changes."""
    schedules = [plan.recipe.batch_schedule, plan.recipe.weight_schedule, plan.lengths]
    changing = {step for schedule in schedules for step, _ in schedule}
    changing |= {step for step, _ in _stage_steps(plan.recipe)}
    return sorted({0, *changing, *(step + 1 for step in changing)})


def _stage_steps(recipe: Recipe) -> list[tuple[int, int]]:
    """Steps of schedules inside stages."""
    stages = [stage for source in recipe.sources for stage in recipe.stages_of(source)]
    return [pair for stage in stages for pair in getattr(stage, "lengths", ())]
