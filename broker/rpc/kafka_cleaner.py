"""The calls of KafkaService for settings and the cleaner."""

from __future__ import annotations

from ledgerfold.broker.common.given_names import NAME_CHARACTERS_MAX
from ledgerfold.broker.common.names import namespace_of, persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.kafka.cleaner.choice import Candidate, Verdict
from ledgerfold.broker.kafka.cleaner.cleaner import plan_of
from ledgerfold.broker.kafka.cleaner.pass_result import PassResult, failure_kind
from ledgerfold.broker.kafka.config.broker_settings import BROKER_SETTINGS
from ledgerfold.broker.kafka.config.settings import Setting, Value, text_of
from ledgerfold.broker.kafka.config.topic_settings import TOPIC_SETTINGS
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.rpc.handlers import Handlers
from ledgerfold.broker.topics.kafka_settings import (
    change_broker_config,
    change_config,
    load_all,
    pause_cleaning,
    resume_cleaning,
)
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.kafka.cleanable import Plan
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.v1 import kafka_pb2

_NO_CHECKPOINT = -1


class CleanerHandlers(Handlers):
    async def _topic(self, name: str) -> KafkaTopic:
        return await self._broker.kafka_topic(persistent_topic(name))

    # -- settings --------------------------------------------------------------------------

    async def get_config(
        self, request: kafka_pb2.GetKafkaConfigRequest
    ) -> kafka_pb2.GetKafkaConfigResponse:
        if not request.topic:
            config = self._broker.kafka_config
            entries = [
                _entry(each, config[name], "broker" if name in config.values else "default")
                for name, each in BROKER_SETTINGS.items()
            ]
            return kafka_pb2.GetKafkaConfigResponse(entries=entries)
        # Partitions have equal settings unless one was changed separately.
        first, *_ = self._broker.partitions.names(persistent_topic(request.topic))
        own = (await self._broker.kafka_topic(first)).config
        entries = [
            _entry(each, own.values[name], own.sources[name])
            for name, each in TOPIC_SETTINGS.items()
        ]
        return kafka_pb2.GetKafkaConfigResponse(entries=entries)

    @runs_to_completion
    async def set_config(self, request: kafka_pb2.SetKafkaConfigRequest) -> None:
        changes: dict[str, str | None] = {**request.set, **dict.fromkeys(request.unset)}
        if request.topic:
            await change_config(self._broker, persistent_topic(request.topic), changes)
        else:
            await change_broker_config(self._broker, changes)

    # -- the cleaner -----------------------------------------------------------------------

    async def plan(self, request: kafka_pb2.PlanCleaningRequest) -> kafka_pb2.PlanCleaningResponse:
        topics = [await self._topic(name) for name in request.topics]
        failures = dict[str, LedgerfoldError]()
        if not topics:
            failures = await load_all(self._broker)
            loaded = self._broker.kafka_topics.values()
            topics = [each for each in loaded if each.config.is_compacted]
        now_ms = self._broker.clock_ms()
        plans = [await self._described_plan(each, now_ms, wants_map=request.map) for each in topics]
        plans += [
            kafka_pb2.CleaningPlan(topic=name, why_not=f"it cannot be loaded: {error}")
            for name, error in failures.items()
        ]
        return kafka_pb2.PlanCleaningResponse(plans=plans)

    async def _described_plan(
        self, topic: KafkaTopic, now_ms: int, *, wants_map: bool
    ) -> kafka_pb2.CleaningPlan:
        if wants_map:
            await self._broker.cleaner.idle(topic.name)
        plan = plan_of(topic.partition, now_ms)
        answer = self._plan(topic, plan)
        if wants_map and plan.bound > plan.first_dirty_offset:
            manifest = await self._broker.cleaner.dry_run(topic.name, plan)
            answer.map_keys, answer.end_offset = manifest.stats.map_keys, manifest.end_offset
            answer.entries.extend(
                kafka_pb2.OffsetMapEntry(key=each.key, offset=each.offset) for each in manifest.map
            )
        return answer

    def _plan(self, topic: KafkaTopic, plan: Plan) -> kafka_pb2.CleaningPlan:
        answer = _plan(topic.name, topic.partition, plan)
        answer.map_keys_max = self._broker.kafka_config.map_keys_max
        cleaner, name = self._broker.cleaner, topic.name
        if not topic.config.is_compacted:
            answer.why_not = "its cleanup.policy is without compact"
        elif cleaner.states.is_uncleanable(name):
            answer.why_not = f"left alone: {cleaner.states.uncleanable[name].why}"
        elif (state := cleaner.states.of(name)) is not None:
            answer.why_not = f"in the state {state}"
        else:
            verdict = Candidate(plan, topic.config.min_cleanable_ratio).verdict
            answer.is_eligible = verdict.is_eligible
            if verdict in (Verdict.CLEAN_ENOUGH, Verdict.EMPTY, Verdict.NOTHING_CLEANABLE):
                answer.why_not = verdict.value
        return answer

    @runs_to_completion
    async def clean(self, request: kafka_pb2.CleanTurnRequest) -> kafka_pb2.CleanTurnResponse:
        name = None
        if request.topic:
            name = (await self._topic(request.topic)).name
        else:
            # A cleaner thread also chooses among all logs.
            await load_all(self._broker)
        result = await self._broker.cleaner.run_pass(name)
        return self._pass_answer(result)

    def _pass_answer(self, result: PassResult) -> kafka_pb2.CleanTurnResponse:
        answer = kafka_pb2.CleanTurnResponse(
            topic=result.topic or "",
            was_aborted=result.was_aborted,
            failure="" if result.failure is None else str(result.failure),
            failure_kind="" if result.failure is None else failure_kind(result.failure),
            deleted_segments=result.deleted_segments,
        )
        topic = self._broker.kafka_topics.get(result.topic or "")
        if topic is not None and result.plan is not None:
            answer.plan.CopyFrom(_plan(topic.name, topic.partition, result.plan))
        if result.outcome is not None:
            stats = result.outcome.manifest.stats
            answer.end_offset = result.outcome.manifest.end_offset
            answer.checkpoint = result.outcome.checkpoint
            answer.stats.CopyFrom(
                kafka_pb2.CleaningStats(
                    map_messages_read=stats.map_messages_read,
                    messages_read=stats.messages_read,
                    messages_written=stats.messages_written,
                    bytes_read=stats.bytes_read,
                    bytes_written=stats.bytes_written,
                    invalid_messages_read=stats.invalid_messages_read,
                    map_keys=stats.map_keys,
                    map_slots=self._broker.kafka_config.map_slots,
                    index_ms=stats.map_ms,
                    elapsed_ms=result.elapsed_ms,
                )
            )
        return answer

    @runs_to_completion
    async def retain(
        self, request: kafka_pb2.RunRetentionRequest
    ) -> kafka_pb2.RunRetentionResponse:
        return kafka_pb2.RunRetentionResponse(deleted_segments=await self._broker.cleaner.retain())

    async def get_cleaner(
        self, request: kafka_pb2.GetCleanerRequest
    ) -> kafka_pb2.GetCleanerResponse:
        cleaner = self._broker.cleaner
        states = {
            name: str(state)
            for name in self._broker.kafka_topics
            if (state := cleaner.states.of(name)) is not None
        }
        checkpoints = cleaner.checkpoints(request.namespace)

        def is_asked(name: str) -> bool:
            return not request.namespace or namespace_of(name) == request.namespace

        left_alone = {
            name: each for name, each in cleaner.states.uncleanable.items() if is_asked(name)
        }
        passes = () if request.namespace else cleaner.last_passes
        return kafka_pb2.GetCleanerResponse(
            gauges={name: float(value) for name, value in cleaner.gauge_values().items()},
            checkpoint_file=checkpoints.text,
            shared_lines=checkpoints.shared,
            uncleanable={name: each.why for name, each in left_alone.items()},
            uncleanable_kinds={name: each.kind for name, each in left_alone.items()},
            states={name: state for name, state in states.items() if is_asked(name)},
            last_turns=map(str, passes),
            is_starting=not cleaner.has_started,
        )

    @runs_to_completion
    async def set_cleaning(
        self, request: kafka_pb2.SetCleaningRequest
    ) -> kafka_pb2.SetCleaningResponse:
        topic, cleaner = await self._topic(request.topic), self._broker.cleaner
        match request.WhichOneof("what"):
            case "checkpoint":
                if request.checkpoint < _NO_CHECKPOINT:
                    raise InvalidRequest(
                        f"{request.checkpoint} is not a valid checkpoint: an offset is 0 or more, "
                        f"and {_NO_CHECKPOINT} removes the stored one."
                    )
                offset = None if request.checkpoint == _NO_CHECKPOINT else request.checkpoint
                await topic.partition.set_checkpoint(offset)
            case "uncleanable_reason":
                reason = request.uncleanable_reason
                if not 0 < len(reason) <= NAME_CHARACTERS_MAX or not reason.isprintable():
                    raise InvalidRequest(
                        f"Give the reason to mark {topic.name} uncleanable, in a line of at most "
                        f"{NAME_CHARACTERS_MAX} characters."
                    )
                cleaner.mark_uncleanable(topic.name, reason)
            case "action" if request.action == "abort-and-pause":
                await pause_cleaning(cleaner, topic)
            case "action" if request.action == "resume":
                await resume_cleaning(cleaner, topic)
            case _:
                raise InvalidRequest(
                    "Name what to set: checkpoint, uncleanable_reason, or an action, which is "
                    "abort-and-pause or resume."
                )
        return kafka_pb2.SetCleaningResponse(
            cleaning_state=str(cleaner.states.of(topic.name) or "")
        )


def _plan(name: str, partition: Partition, plan: Plan) -> kafka_pb2.CleaningPlan:
    return kafka_pb2.CleaningPlan(
        topic=name,
        log_start_offset=partition.log_start_offset,
        log_end_offset=partition.log.end_offset,
        first_dirty_offset=plan.first_dirty_offset,
        first_uncleanable_offset=plan.first_uncleanable_offset,
        bound_offset=plan.bound,
        clean_bytes=plan.clean_bytes,
        cleanable_bytes=plan.cleanable_bytes,
        ratio=plan.ratio or 0.0,
        min_ratio=partition.config.min_cleanable_ratio,
        is_overdue=plan.is_overdue,
        delay_ms=plan.delay_ms,
        bound_by=plan.limit.value,
        repairs_checkpoint=plan.must_repair,
    )


def _entry(setting: Setting, value: Value | None, source: str) -> kafka_pb2.KafkaConfigEntry:
    return kafka_pb2.KafkaConfigEntry(
        name=setting.name,
        value="" if value is None else text_of(value),
        source=source,
        unit=setting.unit,
        doc=setting.doc,
        is_dynamic=setting.is_dynamic,
    )
