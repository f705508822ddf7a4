"""`ogspr tasks`: what can be trained on, by name."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ogspr.envs.tasks import known_tasks
from ogspr.errors import UserError
from ogspr.reference import METHOD, paper_scores


def show_tasks(text: str, console: Console) -> None:
    """Prints the tasks whose name contains `text`; those of the paper first in each suite."""
    tasks, scores = known_tasks(), paper_scores()
    shown = [name for name in tasks if text.lower() in name.lower()]
    if not shown:
        raise UserError(f"no task name contains '{text}'; `ogspr tasks` lists them all.")
    shown.sort(key=lambda name: (name.split(":")[0] != "dmc", name not in scores))
    table = Table("task", "actions", f"{METHOD} in the paper", box=None, header_style="bold")
    table.columns[0].no_wrap = True
    table.columns[2].justify = "right"
    for name in shown:
        table.add_row(name, str(tasks[name]), f"{scores[name]:.0f}" if name in scores else "")
    console.print(table)
    in_paper = sum(name in scores for name in shown)
    console.print(
        f"\n{len(shown)} task{'s' * (len(shown) > 1)}, {in_paper} in the paper. Also: gym:<Gymnasium id>, "
        "module.path:factory for your own."
    )
