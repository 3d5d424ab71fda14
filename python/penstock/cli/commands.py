"""The table of commands: what ``penstock --help`` shows and where each command lives.

A plain table instead of the commands themselves, because importing them (and the command-line library) costs more
than all the time ``penstock --help`` may take. ``tests/cli/test_main.py`` holds it against the real commands.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """A top-level command."""

    name: str
    purpose: str
    #: ``module:attribute`` of the cyclopts app.
    home: str
    #: ``module:attribute`` of a function that takes the words after the command, where loading the library would take too long, or
    #: where words belong to somebody else's program.
    quick: str | None = None


COMMANDS = (
    Command(
        "run",
        "Start a gang of ranks, keep them together, restart them, and leave nothing behind.",
        "penstock.cli.run.help_app:app",
        quick="penstock.cli.run.command:quick",
    ),
    Command("jobs", "List jobs: what runs, what ran, and how it ended.", "penstock.cli.job.jobs:app"),
    Command(
        "ps",
        "Show the processes of jobs: roles, ranks and their descendants, with step, processor time and memory.",
        "penstock.cli.job.ps:app",
        quick="penstock.cli.questions.process_table:quick",
    ),
    Command(
        "top",
        "Watch a job, rank by rank, or runs: diagnosis, loss, tokens/s, MFU, goodput, step time, memory, live.",
        "penstock.cli.job.top:app",
    ),
    Command(
        "stacks",
        "Show the stacks of all ranks at once, equal ones together.",
        "penstock.cli.job.stacks:app",
    ),
    Command(
        "logs",
        "Print what workers wrote, lossless, with places; during the job and after it.",
        "penstock.cli.job.logs:app",
    ),
    Command(
        "attach",
        "Bring a job into the foreground: a screen of what it printed, then its output as it comes.",
        "penstock.cli.run.attach:app",
    ),
    Command(
        "save",
        "Ask the ranks of a job for a checkpoint now; they save after the step that they are in, and go on.",
        "penstock.cli.job.save:app",
    ),
    Command(
        "stop",
        "End a job: a notice or SIGTERM to its ranks, SIGKILL to all of its tree when the grace is over.",
        "penstock.cli.job.stop:app",
    ),
    Command(
        "incident",
        "Show a failure: what came first, how every rank ended, last words, what was decided and why.",
        "penstock.cli.job.incident:app",
    ),
    Command(
        "exec",
        "Run a command or a Python expression beside a rank: its environment, directory, processors.",
        "penstock.cli.job.exec:app",
    ),
    Command(
        "slots",
        "Show what this machine has for jobs, who holds it, and who waits.",
        "penstock.cli.job.slots:app",
    ),
    Command(
        "hosts",
        "The hosts of a job, and the key that hosts share so that they can join one.",
        "penstock.cli.hosts:app",
    ),
    Command(
        "simulate",
        "Live a job through on imagined hosts: what faults, spares, leases and save intervals cost over weeks.",
        "penstock.cli.simulate.simulate_command:app",
    ),
    Command(
        "data",
        "Register raw files as datasets, look at them, verify, measure and export them.",
        "penstock.cli.data:app",
    ),
    Command(
        "checkpoint",
        "List, look into, verify, compare, export, import, prune and repair checkpoints; no GPU and no model code needed.",
        "penstock.cli.checkpoint:app",
    ),
    Command(
        "cache",
        "Show, verify, trim and clear what this host keeps of far objects; deleting it changes speed only.",
        "penstock.cli.cache:app",
    ),
    Command(
        "runs",
        "List training runs, tell the story of one across all of its lives, and prove that it is what it should be.",
        "penstock.cli.runs:app",
    ),
    Command(
        "report",
        "Say why training is slow and where its time went: diagnosis, ledger, breakdown, incidents, stalls, memory.",
        "penstock.cli.report.report_command:app",
    ),
    Command(
        "compare",
        "Compare two runs: speed and loss with an interval, and the first step whose bits differ.",
        "penstock.cli.report.compare_command:app",
    ),
    Command(
        "demo", "Show the best real thing this build does, end to end, and check it.", "penstock.cli.demo:app"
    ),
    Command(
        "doctor",
        "Examine this machine: what is installed, limits, accelerators, disk.",
        "penstock.cli.doctor:app",
    ),
    Command(
        "flops",
        "Count what a step of a model computes, by module, on fake tensors: no GPU, no weights.",
        "penstock.cli.observe.flops:app",
    ),
    Command(
        "events",
        "Print the events that a process or a whole run recorded, or what happened to a job.",
        "penstock.cli.events:app",
    ),
    Command(
        "view",
        "Look at data as the model sees it: versions and rows, and the batch of any step of a recipe or a run.",
        "penstock.cli.view:app",
    ),
    Command(
        "web", "Look at data, batches, recordings and this machine in a browser.", "penstock.cli.web:app"
    ),
    Command("completion", "Print the completion script for a shell.", "penstock.cli.completion:app"),
)

EXAMPLES = """\
examples:
  penstock doctor                      is this machine fit for training?
  penstock run --ranks 8 -- train.py   start eight ranks and keep them together
  penstock data register web 'raw/*'   point at the files you have
  penstock report runs/exp1            why is my training slow, where did the time go?
  penstock COMMAND --help              purpose, options and examples of a command"""


def overview() -> str:
    """The text of ``penstock --help``."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:<{width}}  {command.purpose}" for command in COMMANDS]
    return "\n".join(
        [
            "usage: penstock COMMAND [OPTIONS]",
            "",
            "A training runtime: brings data, state and processes to accelerators at full pressure.",
            "",
            "commands:",
            *lines,
            "",
            "options of every command:",
            "  --help     purpose, options and examples",
            "  --json     machine-readable output on stdout",
            "  --debug    show the traceback of an error",
            "  --version  print the version (penstock --version)",
            "",
            EXAMPLES,
        ]
    )
