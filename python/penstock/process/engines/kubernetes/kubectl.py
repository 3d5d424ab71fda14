"""``kubectl``, with a limit on each call and its words as errors. A control plane that does not answer is *silent*, and nothing follows."""

import json
import os
import re
import subprocess
from typing import Any, NamedTuple

from penstock.errors.engines import EngineMissing, EngineRefused, EngineSilent

TITLE = "Kubernetes"
#: For one command; the server has less, so that its own words come back.
PATIENCE_S, REQUEST_S = 30.0, 20
#: Indexed Jobs whose lost pods come back need it (1.28), and so does the end of a job by one success (1.31, else it is ignored).
OLDEST = (1, 28)
_SILENT = (
    "Unable to connect to the server",
    "connection refused",
    "was refused - did you specify the right host or port",
    "i/o timeout",
    "context deadline exceeded",
    "Client.Timeout exceeded",
    "no such host",
    "ServiceUnavailable",
    "the server is currently unable to handle the request",
    "etcdserver: ",
    "TLS handshake timeout",
)


class Kubectl(NamedTuple):
    """Where it asks: a context of the kubeconfig and a namespace; empty for what the kubeconfig says."""

    namespace: str = ""
    context: str = ""

    def command(self, *words: str, limited: bool = True) -> list[str]:
        """The words of a call."""
        where = [*(["--context", self.context] if self.context else [])]
        where += [*(["--namespace", self.namespace] if self.namespace else [])]
        return ["kubectl", *where, *([f"--request-timeout={REQUEST_S}s"] if limited else []), *words]

    def said(self, *words: str, text: str | None = None) -> str:
        """Its answer. Raises what went wrong in the cluster's own words."""
        try:
            done = subprocess.run(
                self.command(*words),
                input=text,
                stdin=subprocess.DEVNULL if text is None else None,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE_S,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except FileNotFoundError:
            raise EngineMissing(
                engine=TITLE,
                reason="there is no program called kubectl here",
                hint="install kubectl where you start jobs; hosts do not need it",
            ) from None
        except subprocess.TimeoutExpired:
            raise EngineSilent(engine=TITLE, reason=f"kubectl did not answer in {PATIENCE_S:g} s") from None
        if done.returncode == 0:
            return done.stdout
        problem = _told(done.stderr or done.stdout)
        if any(words.lower() in problem.lower() for words in _SILENT):
            raise EngineSilent(engine=TITLE, reason=problem)
        raise EngineRefused(engine=TITLE, words=problem, hint=_hint(problem))

    def document(self, *words: str) -> dict[str, Any]:
        """Its answer as JSON."""
        said = self.said(*words, "-o", "json")
        try:
            answer = json.loads(said)
        except ValueError:
            raise EngineRefused(engine=TITLE, words=f"kubectl gave no JSON: {said[:200]!r}") from None
        return answer if isinstance(answer, dict) else {}

    def server_version(self) -> tuple[int, int]:
        """Of the control plane."""
        about = self.document("version").get("serverVersion") or {}
        numbers = [re.sub(r"\D", "", str(about.get(key, ""))) or "0" for key in ("major", "minor")]
        return int(numbers[0]), int(numbers[1])

    def create(self, document: str, *options: str) -> None:
        """Make what a text describes."""
        self.said("create", "-f", "-", *options, text=document)

    def remove(self, kind: str, name: str, *options: str) -> bool:
        """Delete it; whether it was there."""
        said = self.said("delete", kind, name, "--ignore-not-found", "--wait=false", *options)
        return bool(said.strip())


def _told(text: str) -> str:
    lines = [re.sub(r"^(error|Error from server)(: )?", "", line.strip()) for line in text.splitlines()]
    # What its log library says beside the error is for its developers.
    lines = [line for line in lines if line and not re.match(r"[EIW]\d{4} \d\d:\d\d:\d\d", line)]
    return "; ".join(lines) or "no word about why"


def _hint(words: str) -> str | None:
    if "(Forbidden)" in words:
        return "`penstock hosts setup kubernetes --user NAME` prints the rights that are needed"
    if "no matches for kind" in words:
        return "this cluster is too old, or lacks what the template asks for"
    return None
