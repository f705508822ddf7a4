"""What one run writes down while it trains."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ogspr.errors import UserError
from ogspr.records.files import NewFiles, make_inner_folder
from ogspr.records.run import RunFolder
from ogspr.records.sinks import Sink, TensorBoard, known
from ogspr.records.tables import Table, check_table, mean_scores, read_rows, whole_lines
from ogspr.training.evaluation import Evaluation, PolicySnapshot
from ogspr.training.policy_file import (
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

    Made, it has changed nothing: `prepare` and then `begin` do, when the run cannot be refused any more.

    Args:
        folder: The run's.
        describe: Makes a policy file's content of what was evaluated and its mean score.
        sinks: Get the same numbers.
        state: Of the checkpoint the run resumes from; None: a new run.
        listen: Called with a line about every evaluation.
    """

    def __init__(
        self,
        folder: RunFolder,
        describe: Callable[[PolicySnapshot, float], SavedPolicy],
        sinks: Sequence[Sink],
        state: Mapping[str, Any] | None,
        listen: Callable[[Evaluation, bool], None],
    ) -> None:
        self._folder = folder
        self._describe = describe
        self._sinks = sinks
        self._listen = listen
        paths = (folder.train_table, folder.episode_table, folder.evaluation_table)
        self._sizes = {path: int(state["sizes"][path.name]) if state else 0 for path in paths}
        self._system_size = whole_lines(folder.system_table) if state else 0
        for path, size in self._all_sizes():
            check_table(path, size)
        saved = state["policies"] if state else {}
        self._policies = {
            which: policy_from(saved[which], "the checkpoint") for which in (BEST, LAST) if which in saved
        }
        self._open = contextlib.ExitStack()
        self._tables: dict[str, Table] = {}

    def prepare(self, files: NewFiles) -> None:
        """What takes room on the disk, and may find that there is none."""
        for which in (BEST, LAST):
            path = policy_path(self._folder.path, which)
            if which in self._policies:
                make_inner_folder(path.parent)
                save_policy(files.begin(path), self._policies[which])
            elif path.exists():
                files.instead_of(path)
        for sink in self._sinks:
            sink.open(files)
            self._open.callback(sink.close)
            if isinstance(sink, TensorBoard):
                self._retell(sink)

    def begin(self) -> None:
        """Truncates the tables to where the run resumes: later rows are written again."""
        for path, size in self._all_sizes():
            self._tables[path.name] = Table(path, size)
            self._open.callback(self._tables[path.name].close)

    def train(self, row: dict[str, float]) -> None:
        self._append(self._folder.train_table.name, [row])
        self._tell(int(row["agent_steps"]), known(row, "train"))

    def episode(self, row: dict[str, Any]) -> None:
        self._append(self._folder.episode_table.name, [row])

    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        """Every episode is a row; the policy is kept as the last one and, where it is, as the best one."""
        snapshot = evaluation.snapshot
        rows: list[dict[str, Any]] = [
            {
                "agent_steps": snapshot.agent_steps,
                "frames": snapshot.frames,
                "episode": number,
                "score": episode.score,
                "episode_steps": episode.agent_steps,
                "ended": episode.ended,
                "fault": episode.fault,
            }
            for number, episode in enumerate(evaluation.episodes, start=1)
        ]
        self._append(self._folder.evaluation_table.name, rows)
        policy = self._describe(snapshot, evaluation.mean_score)
        for which in (LAST, BEST) if best else (LAST,):
            self._keep_policy(which, policy)
        self._tell(snapshot.agent_steps, {_SCORE: evaluation.mean_score})
        self._listen(evaluation, best)

    def system(self, row: dict[str, float]) -> None:
        """What depends on the machine and the hour: kept apart from what a run finds, and never cut off."""
        self._append(self._folder.system_table.name, [row])

    def state_dict(self) -> dict[str, Any]:
        """Bytes of each csv file, all of them safe; and the policies: their files get ahead of it."""
        return {
            "sizes": {path.name: self._tables[path.name].safe_size() for path in self._sizes},
            "policies": {which: policy_tree(policy) for which, policy in self._policies.items()},
        }

    def close(self) -> None:
        self._open.close()

    def _all_sizes(self) -> list[tuple[Path, int]]:
        return [*self._sizes.items(), (self._folder.system_table, self._system_size)]

    def _retell(self, sink: Sink) -> None:
        """Replays the tables to a sink that starts again, up to where the run resumes."""
        try:
            for agent_steps, values in self._told():
                sink.log(agent_steps, values)
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise UserError(
                f"the csv files of {self._folder.path} are damaged: {error!r}; restore intact ones."
            ) from None

    def _told(self) -> Iterator[tuple[int, dict[str, float]]]:
        train, evaluation = self._folder.train_table, self._folder.evaluation_table
        if size := self._sizes[train]:
            for row in read_rows(train, size):
                yield int(row["agent_steps"]), known(row, "train")
        if size := self._sizes[evaluation]:
            for agent_steps, score in mean_scores(evaluation, size).items():
                yield agent_steps, {_SCORE: score}

    def _keep_policy(self, which: str, policy: SavedPolicy) -> None:
        self._policies[which] = policy
        path = policy_path(self._folder.path, which)
        make_inner_folder(path.parent)
        save_policy(path, policy)

    def _append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._tables[table].append(rows)

    def _tell(self, agent_steps: int, values: Mapping[str, float]) -> None:
        for sink in self._sinks:
            sink.log(agent_steps, values)
