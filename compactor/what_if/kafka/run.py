"""A Kafka topic's analysis in the worker: the Spark job that reads its log, and the replays."""

from __future__ import annotations

from ledgerfold.compactor.job.session import Session
from ledgerfold.compactor.what_if.kafka.replays import CleaningReplays
from ledgerfold.compactor.what_if.spark_analysis import SparkAnalysis
from ledgerfold.v1.compactor_pb2 import KafkaHistory
from ledgerfold.v1.what_if_pb2 import TopicWhatIf


class KafkaAnalysisRun(SparkAnalysis):
    def __init__(self, asked: KafkaHistory, session: Session) -> None:
        """Raises InvalidRequest if the request is invalid."""
        super().__init__(session, asked.topic)
        self._replays = CleaningReplays(asked)

    def _execute(self) -> TopicWhatIf:
        return self._replays.run(self._session.context, self._check_cancelled)
