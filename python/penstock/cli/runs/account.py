"""``penstock runs show --account``."""

from pathlib import Path

from penstock.cli.output import print_facts, print_json, print_table
from penstock.report import ledger
from penstock.report.accounts.account_names import ACCOUNTS


def show_account(run: Path, *, json: bool) -> int:
    """The ledger: all ranks together, and every life of every rank."""
    accounts = ledger(run)
    if json:
        print_json(accounts.to_json())
        return 0
    goodput = accounts.goodput()
    print_facts(
        {
            "run": run,
            "wall time": f"{accounts.longest / 1e9:.3f} s on {len(accounts.ranks)} ranks",
            "steps": _steps(accounts.ranks[0].steps("kept"), accounts.ranks[0].steps("lost"))
            if accounts.ranks
            else "",
            "runtime goodput": _share(goodput["runtime"]),
        }
    )
    print()
    spent = [name for name, total in accounts.accounts.items() if total]
    rows = [
        (
            rank.rank,
            life.number,
            life.kept_steps,
            life.lost_steps,
            *(_seconds(life.accounts[name]) for name in spent),
        )
        for rank in accounts.ranks
        for life in rank.lives
    ]
    rows.append(("all", "", "", "", *(_seconds(accounts.accounts[name]) for name in spent)))
    heads = ["rank", "life", "steps", "lost steps", *(f"{name} s" for name in spent)]
    print_table(heads, rows, right=heads)
    print()
    print_table(["account", "what it is"], [(name, ACCOUNTS[name]) for name in spent])
    return 0


def _steps(kept: int, lost: int) -> str:
    return f"{kept} that count, {lost} lost"


def _share(value: float | str) -> str:
    return value if isinstance(value, str) else f"{100 * value:.1f} %"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.3f}"
