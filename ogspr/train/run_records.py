"""What one run writes down while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ogspr.records.curve import mean_scores, read_rows
from ogspr.records.run import RunFolder
from ogspr.records.sinks import Sink, known
from ogspr.records.tables import Table, whole_lines
from ogspr.train.evaluation import Evaluation, Occasion
from ogspr.train.policy_file import (
    BEST,
    LAST,
    SavedPolicy,
    policy_from,
    policy_path,
    policy_tree,
    save_policy,
)

_SCORE = "eval/score"


class RunRecords:
    """The csv files of a run, its policies, and whoever else listens.

    Args:
        folder: The run's.
        describe: Makes a policy file's content of what was evaluated and its mean score.
        sinks: Told the same numbers.
        state: Of the checkpoint the run goes on from; None: a new run.
        listen: Called with a line about every evaluation.
    """

    def __init__(
        self,
        folder: RunFolder,
        describe: Callable[[Occasion, float], SavedPolicy],
        sinks: Sequence[Sink],
        state: Mapping[str, Any] | None,
        listen: Callable[[Evaluation, bool], None],
    ) -> None:
        self._folder = folder
        self._describe = describe
        self._sinks = sinks
        self._listen = listen
        sizes: Mapping[str, int] = state["sizes"] if state else {}
        paths = (folder.train_table, folder.episode_table, folder.evaluation_table)
        self._system = Table(folder.system_table, whole_lines(folder.system_table) if state else 0)
        self._tables = {path.name: Table(path, sizes.get(path.name, 0)) for path in paths}
        self._policies: dict[str, SavedPolicy] = {}
        if state:
            self._restore_policies(state["policies"])

    def train(self, row: dict[str, float]) -> None:
        self._append(self._folder.train_table.name, [row])
        self._tell(int(row["agent_steps"]), known(row, "train"))

    def episode(self, row: dict[str, Any]) -> None:
        self._append(self._folder.episode_table.name, [row])

    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        """Every episode is a row; the policy is kept as the last one and, where it is, as the best one."""
        occasion = evaluation.occasion
        rows: list[dict[str, Any]] = [
            {
                "agent_steps": occasion.agent_steps,
                "frames": occasion.frames,
                "episode": number,
                "score": episode.score,
                "episode_steps": episode.agent_steps,
                "ended": episode.ended,
                "fault": episode.fault,
            }
            for number, episode in enumerate(evaluation.episodes, start=1)
        ]
        self._append(self._folder.evaluation_table.name, rows)
        policy = self._describe(occasion, evaluation.mean_score)
        for which in (LAST, BEST) if best else (LAST,):
            self._keep_policy(which, policy)
        self._tell(occasion.agent_steps, {_SCORE: evaluation.mean_score})
        self._listen(evaluation, best)

    def system(self, row: dict[str, float]) -> None:
        """What depends on the machine and the hour: kept apart from what a run finds, and never cut off."""
        self._system.append([row])

    def retell(self, sink: Sink) -> None:
        """Tells one that begins anew what the tables say already."""
        for row in read_rows(self._folder.train_table):
            sink.log(int(row["agent_steps"]), known(row, "train"))
        for agent_steps, score in mean_scores(self._folder.evaluation_table).items():
            sink.log(agent_steps, {_SCORE: score})

    def state_dict(self) -> dict[str, Any]:
        """Bytes of each csv file, all of them safe; and the policies: their files get ahead of it."""
        return {
            "sizes": {name: table.safe_size() for name, table in self._tables.items()},
            "policies": {which: policy_tree(policy) for which, policy in self._policies.items()},
        }

    def close(self) -> None:
        for table in (*self._tables.values(), self._system):
            table.close()
        for sink in self._sinks:
            sink.close()

    def _keep_policy(self, which: str, policy: SavedPolicy) -> None:
        self._policies[which] = policy
        save_policy(policy_path(self._folder.path, which), policy)

    def _restore_policies(self, saved: Mapping[str, dict[str, Any]]) -> None:
        for which in (BEST, LAST):
            if which in saved:
                self._keep_policy(which, policy_from(saved[which], "the checkpoint"))
            else:
                policy_path(self._folder.path, which).unlink(missing_ok=True)

    def _append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._tables[table].append(rows)

    def _tell(self, agent_steps: int, values: Mapping[str, float]) -> None:
        for sink in self._sinks:
            sink.log(agent_steps, values)
