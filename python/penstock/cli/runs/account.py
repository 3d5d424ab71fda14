"""``penstock runs show --account``."""

from pathlib import Path

from penstock.cli.output import print_facts, print_json, print_table
from penstock.report.account import ACCOUNTS, account


def show_account(run: Path, *, json: bool) -> int:
    """Where the time of rank 0 went."""
    run_account = account(run)
    if json:
        print_json(run_account.to_json())
        return 0
    total = sum(run_account.seconds.values())
    print_facts(
        {
            "run": run,
            "wall time": f"{run_account.wall_s:.3f} s, of which accounted {total:.3f} s",
            "steps": f"{run_account.kept} that count, {run_account.lost} lost",
            "useful": f"{100 * run_account.useful:.1f} % of the wall time",
        }
    )
    print()
    rows = [
        (life.incarnation, life.kept, life.lost, *(f"{life.seconds[name]:.3f}" for name in ACCOUNTS))
        for life in run_account.lives
    ]
    rows.append(
        (
            "all",
            run_account.kept,
            run_account.lost,
            *(f"{run_account.seconds[name]:.3f}" for name in ACCOUNTS),
        )
    )
    heads = ["life", "steps", "lost steps", *(f"{name} s" for name in ACCOUNTS)]
    print_table(heads, rows, right=heads)
    return 0
