"""What one run writes down while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ogspr.agents.protocol import AgentConfig
from ogspr.records.run import RunFolder
from ogspr.records.sinks import Sink, known
from ogspr.records.tables import Table
from ogspr.train.evaluation import Evaluation
from ogspr.train.policy_file import BEST, LAST, SavedPolicy, policy_path, save_policy
from ogspr.types import EnvSpec


class RunRecords:
    """The csv files of a run, its policies, and whoever else listens.

    Args:
        folder: The run's.
        config: The method's configuration, which goes into policy files.
        spec: The environment, likewise.
        origin: Task and seed, likewise.
        sinks: Told the same numbers.
        sizes: Bytes of the csv files in the checkpoint the run goes on from; empty: a new run.
        listen: Called with a line about every evaluation.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: AgentConfig,
        spec: EnvSpec,
        origin: dict[str, Any],
        sinks: Sequence[Sink],
        sizes: Mapping[str, int],
        listen: Callable[[Evaluation, bool], None],
    ) -> None:
        self._folder = folder
        self._config = config
        self._spec = spec
        self._origin = origin
        self._sinks = sinks
        self._listen = listen
        paths = (folder.train_table, folder.episode_table, folder.evaluation_table)
        system = folder.system_table
        self._system = Table(system, system.stat().st_size if sizes and system.exists() else 0)
        self._tables = {path.name: Table(path, sizes.get(path.name, 0)) for path in paths}

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
        origin = self._origin | {"agent_steps": occasion.agent_steps, "score": evaluation.mean_score}
        policy = SavedPolicy(self._config, self._spec, occasion.weights, origin)
        save_policy(policy_path(self._folder.path, LAST), policy)
        if best:
            save_policy(policy_path(self._folder.path, BEST), policy)
        self._tell(occasion.agent_steps, {"eval/score": evaluation.mean_score})
        self._listen(evaluation, best)

    def system(self, row: dict[str, float]) -> None:
        """What depends on the machine and the hour: kept apart from what a run finds, and never cut off."""
        self._system.append([row])

    def sizes(self) -> dict[str, int]:
        """Bytes of each csv file, all of them safe."""
        return {name: table.safe_size() for name, table in self._tables.items()}

    def close(self) -> None:
        for table in (*self._tables.values(), self._system):
            table.close()
        for sink in self._sinks:
            sink.close()

    def _append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._tables[table].append(rows)

    def _tell(self, agent_steps: int, values: Mapping[str, float]) -> None:
        for sink in self._sinks:
            sink.log(agent_steps, values)
