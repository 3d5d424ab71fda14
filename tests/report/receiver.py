"""A small receiver of OpenTelemetry metrics: a real HTTP server, which reads requests by OpenTelemetry's own classes."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


@dataclass
class Received:
    """What came, and what is to be answered."""

    url: str = ""
    requests: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    #: Statuses of the next answers; then 200.
    statuses: list[int] = field(default_factory=list)
    #: Points that the next answer says were rejected.
    rejected: int = 0

    def points(self) -> Iterator[tuple[dict[str, Any], str, Any]]:
        """Attributes of resource and point, name of the metric, and the point."""
        for request in self.requests:
            for resource in request.resource_metrics:
                facts = {one.key: _value(one.value) for one in resource.resource.attributes}
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        data = getattr(metric, metric.WhichOneof("data"))
                        for point in data.data_points:
                            own = {one.key: _value(one.value) for one in point.attributes}
                            yield {**facts, **own}, metric.name, point


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def receiver() -> Iterator[Received]:
    """Listens on a free port until the block ends."""
    received = Received()

    class MetricsEndpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            status = received.statuses.pop(0) if received.statuses else 200
            received.paths.append(self.path)
            received.headers.append(dict(self.headers))
            answer = ExportMetricsServiceResponse()
            if status == 200:
                received.requests.append(ExportMetricsServiceRequest.FromString(body))
                answer.partial_success.rejected_data_points = received.rejected
                answer.partial_success.error_message = "planted" if received.rejected else ""
            data = answer.SerializeToString() if status == 200 else b"planted <refusal>"
            self.send_response(status)
            if status == 503:
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: Any) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), MetricsEndpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
