"""Which route answers what: the table of contents of the API, by the path below ``api/``.

``media`` and ``field`` answer with bytes and are not here. ``batch`` answers with packed columns; what is declared is their header.
"""

from typing import TypedDict

from penstock.view.wire import batch_answers as batch
from penstock.view.wire import dataset_answers as dataset
from penstock.view.wire import host_answers as host
from penstock.view.wire import machine_answers as machine
from penstock.view.wire import run_answers as run


class Refusal(TypedDict):
    """Why a question is not answered, for people."""

    message: str
    hint: str | None


class ErrorAnswer(TypedDict):
    """What any route answers instead, with a status that is no success."""

    error: Refusal


Answers = TypedDict(
    "Answers",
    {
        "batch": batch.PackedBatch,
        "columns": dataset.VersionSpread,
        "datasets": dataset.DatasetList,
        "difference": dataset.VersionDifference,
        "differences": batch.BatchDifference,
        "doctor": machine.DoctorReport,
        "error": ErrorAnswer,
        "events": machine.RecordingList,
        "events/{name}": machine.RecordingDetail,
        "events/{name}/{index}": machine.EventDetail,
        "filter": dataset.FilteredPage,
        "hosts": host.HostJobList,
        "hosts/board": host.HostBoard,
        "hosts/host": host.HostDetail,
        "hosts/moves": host.HostMoves,
        "lanes": batch.LaneLens,
        "lineage": dataset.LineageGraph,
        "recipes": batch.RecipeDifference,
        "records": batch.RecordPage,
        "roles": batch.RoleBudget,
        "row": dataset.WholeRow,
        "rows": dataset.RowPage,
        "run": run.RunOverview,
        "run/curves": run.CurveSet,
        "run/heat": run.HeatMap,
        "run/state": run.RunState,
        "runs": run.RunList,
        "shards": dataset.ShardPage,
        "stages": batch.SampleStagesAnswer,
        "streams": dataset.StreamList,
        "taps": batch.RunTaps,
        "token": batch.TokenDetail,
        "version": dataset.VersionDetail,
        "versions": dataset.VersionList,
    },
)
"""Answers by route."""
