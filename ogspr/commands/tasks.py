"""`ogspr tasks`: what can be trained on, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from ogspr.commands.declared import Tasks
from ogspr.envs.tasks import known_tasks
from ogspr.errors import UserError, suggestion
from ogspr.reference import METHOD, paper_scores


def show_tasks(wanted: Tasks, console: Console) -> None:
    """Prints the tasks whose name contains a text; those of the paper first in each suite."""
    text, tasks, scores = wanted.text, known_tasks(), paper_scores()
    shown = [name for name in tasks if text.lower() in name.lower()]
    if not shown:
        advice = suggestion(text, _in_the_form_of(text, tasks))
        raise UserError(f"no task name contains '{text}'; {advice} `ogspr tasks` lists them all.")
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


def _in_the_form_of(text: str, tasks: Iterable[str]) -> set[str]:
    """Whole names, names without their suite, or words of them: a word is like no whole name."""
    if ":" in text:
        return set(tasks)
    if "-" in text:
        return {name.partition(":")[2] for name in tasks}
    return {word for name in tasks for word in re.split("[:-]", name)}
