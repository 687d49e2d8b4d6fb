"""The calls of AdminService about compaction: runs, explain, what-if."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ledgerfold.broker.common.names import persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.explain.kafka_scan import KafkaExplainer
from ledgerfold.broker.explain.scan import Explainer
from ledgerfold.broker.rpc.existing import COMPACTED, stored_names
from ledgerfold.broker.rpc.name_pages import page_of_runs
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.partitioned_compaction import PartitionedCompaction
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.broker.whatif.forecaster import Forecaster
from ledgerfold.broker.whatif.kafka_forecaster import KafkaForecaster
from ledgerfold.storage.errors import InvalidRequest, TopicIsPartitioned
from ledgerfold.strategies.catalogue import checked
from ledgerfold.v1 import admin_pb2, explain_pb2, what_if_pb2


class CompactionHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._compaction = PartitionedCompaction(broker)
        self._explainer = Explainer(broker)
        self._kafka_explainer = KafkaExplainer(broker)
        self._forecaster = Forecaster(broker)
        self._kafka_forecaster = KafkaForecaster(broker)

    @runs_to_completion
    async def trigger(
        self, request: admin_pb2.TriggerCompactionRequest
    ) -> admin_pb2.TriggerCompactionResponse:
        strategy = checked(request.strategy) if request.HasField("strategy") else None
        name = persistent_topic(request.topic, COMPACTED)
        number = await self._compaction.trigger(name, strategy)
        return admin_pb2.TriggerCompactionResponse(run_number=number)

    async def status(
        self, request: admin_pb2.GetCompactionStatusRequest
    ) -> admin_pb2.GetCompactionStatusResponse:
        name = persistent_topic(request.topic, COMPACTED)
        if count := self._broker.partitions.count(name):
            applied = self._broker.policies.of_topic(name, applied=True)
            if not applied.emulation.partitioned_status:
                raise TopicIsPartitioned(name, count)
        return await self._compaction.status(name)

    async def watch(
        self, request: admin_pb2.WatchCompactionRequest
    ) -> AsyncIterator[admin_pb2.WatchCompactionResponse]:
        name = persistent_topic(request.topic, COMPACTED)
        async for status in self._compaction.watch(name):
            yield admin_pb2.WatchCompactionResponse(status=status)

    @runs_to_completion
    async def cancel(
        self, request: admin_pb2.CancelCompactionRequest
    ) -> admin_pb2.CancelCompactionResponse:
        number = await self._compaction.cancel(stored_names(self._broker, request.topic))
        return admin_pb2.CancelCompactionResponse(run_number=number)

    async def list_runs(self, request: admin_pb2.ListRunsRequest) -> admin_pb2.ListRunsResponse:
        if request.limit < 0:
            raise InvalidRequest(f"Limit {request.limit} is negative; 0 means all.")
        topics = stored_names(self._broker, request.topic) if request.topic else []
        history = self._broker.compaction.history
        return await self._broker.in_thread(lambda: page_of_runs(history.runs(*topics), request))

    async def explain(self, request: explain_pb2.ExplainRequest) -> explain_pb2.ExplainResponse:
        if request.HasField("message_id"):
            names = [persistent_topic(request.topic, COMPACTED)]
        else:
            names = stored_names(self._broker, request.topic)
        loaded = [await self._broker.any_topic(name, create=False) for name in names]
        if kafka := [each for each in loaded if isinstance(each, KafkaTopic)]:
            return await self._kafka_explainer.explain(kafka, request)
        topics = [each for each in loaded if isinstance(each, Topic)]
        return await self._explainer.explain(topics, request)

    async def what_if(self, request: what_if_pb2.WhatIfRequest) -> what_if_pb2.WhatIfResponse:
        names = stored_names(self._broker, request.topic)
        loaded = [await self._broker.any_topic(name, create=False) for name in names]
        if kafka := [each for each in loaded if isinstance(each, KafkaTopic)]:
            return await self._kafka_forecaster.answer(kafka, request)
        topics = [each for each in loaded if isinstance(each, Topic)]
        return await self._forecaster.answer(topics, request)
