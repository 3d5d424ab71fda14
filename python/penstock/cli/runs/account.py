"""``penstock runs show --account``."""

from pathlib import Path

from penstock.cli.output import print_facts, print_json, print_table
from penstock.report.account import ACCOUNTS, account


def show_account(run: Path, *, json: bool) -> int:
    """Where the time of rank 0 went."""
    found = account(run)
    if json:
        print_json(found.to_json())
        return 0
    total = sum(found.seconds.values())
    print_facts(
        {
            "run": run,
            "wall time": f"{found.wall_s:.3f} s, of which accounted {total:.3f} s",
            "steps": f"{found.kept} that count, {found.lost} lost",
            "useful": f"{100 * found.useful:.1f} % of the wall time",
        }
    )
    print()
    rows = [
        (life.incarnation, life.kept, life.lost, *(f"{life.seconds[name]:.3f}" for name in ACCOUNTS))
        for life in found.lives
    ]
    rows.append(("all", found.kept, found.lost, *(f"{found.seconds[name]:.3f}" for name in ACCOUNTS)))
    heads = ["life", "steps", "lost steps", *(f"{name} s" for name in ACCOUNTS)]
    print_table(heads, rows, right=heads)
    return 0
