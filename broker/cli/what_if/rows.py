"""Results of `what-if` as rows, with the same names in JSON and in tables.

`estimated` names the estimated figures of a row: those derived from the bytes of entries that would
be rebuilt. The others are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.output import decoded
from ledgerfold.broker.cli.tables import fields_of
from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.storage.message_ids import id_text

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import CompactionStrategy
    from ledgerfold.v1.what_if_pb2 import (
        CleaningReplay,
        CleaningTrial,
        KeptMessages,
        KeyDifference,
        Replay,
        ReplaySetting,
        StrategyForecast,
        TopicWhatIf,
        WhatIfInput,
    )

Row = dict[str, Any]
_SIZES = {"T": 1024**4, "G": 1024**3, "M": 1024**2, "K": 1024, "": 1}
_TIMES_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_OF_STRATEGY = ["bytes", "reclaimable_bytes", "garbage_ratio"]
_OF_REPLAY = [
    "read_bytes",
    "rewritten_bytes",
    "write_amplification",
    "peak_space_bytes",
    "mean_space_bytes",
]
_OF_CLEANING = ["end_space_bytes", "deleted_bytes"]


def input_row(input_: WhatIfInput) -> Row:
    return fields_of(input_, "messages entries bytes tombstones null_keys")


def strategy_row(forecast: StrategyForecast) -> Row:
    row: Row = {"strategy": strategy_text(forecast.strategy)}
    if forecast.not_forecast:
        return row | {"not_forecast": forecast.not_forecast}
    return row | {
        "survivors": forecast.messages,
        **fields_of(forecast, "entries bytes bytes_estimated keys removed_events"),
        "reclaimable_bytes": forecast.bytes_reclaimable,
        "garbage_ratio": round(forecast.garbage_ratio, 4),
        "estimated": _OF_STRATEGY if forecast.bytes_estimated else [],
    }


def strategy_text(strategy: CompactionStrategy) -> str:
    """Formats a strategy as the option takes it."""
    settings = ",".join(f"{name}={value}" for name, value in sorted(strategy.settings.items()))
    return f"{strategy.name}:{settings}" if settings else str(strategy.name)


def compared_names(result: TopicWhatIf) -> list[str]:
    """Returns the names of the strategies whose messages are compared."""
    return [strategy_text(each.strategy) for each in result.forecasts if not each.not_forecast]


def difference_row(difference: KeyDifference, strategies: Sequence[str]) -> Row:
    key, encoding = decoded(difference.key)
    row: Row = {"key": key}
    if encoding is not None:
        row["key_encoding"] = encoding
    survivors = zip(strategies, difference.kept, strict=True)
    return row | {"kept": [{"strategy": name} | _survivor_row(each) for name, each in survivors]}


def _survivor_row(survivors: KeptMessages) -> Row:
    if not survivors.count:
        return {"messages": 0, "last": None, "value": None, "value_bytes": 0}
    value, encoding = decoded(survivors.value, is_cut=survivors.value_bytes > len(survivors.value))
    at = survivors.last
    row: Row = {
        "messages": survivors.count,
        "last": id_text(at.ledger_id, at.entry_id, at.partition, at.batch_index),
        "value": value,
        "value_bytes": survivors.value_bytes,
    }
    return row if encoding is None else row | {"encoding": encoding}


def replay_row(replay: Replay) -> Row:
    return setting_row(replay.setting) | {
        "runs": replay.runs,
        "read_bytes": replay.bytes_read,
        "rewritten_bytes": replay.bytes_rewritten,
        "write_amplification": round(replay.write_amplification, 3),
        "peak_space_bytes": replay.space_peak_bytes,
        "mean_space_bytes": round(replay.space_mean_bytes),
        "mean_rewind_bytes": round(replay.rewind_mean_bytes),
        # The result of runs is estimated from the share of messages; published bytes are exact.
        "estimated": [*_OF_REPLAY, "mean_rewind_bytes"] if replay.runs else [],
        "why_no_run": replay.why_no_run or None,
    }


def cleaning_row(cleaning: CleaningReplay) -> Row:
    return {
        "settings": trial_text(cleaning.trial),
        "rounds": cleaning.rounds,
        "read_bytes": cleaning.bytes_read,
        "rewritten_bytes": cleaning.bytes_rewritten,
        "estimated_bytes": cleaning.bytes_estimated,
        "write_amplification": round(cleaning.write_amplification, 3),
        "peak_space_bytes": cleaning.space_peak_bytes,
        "mean_space_bytes": round(cleaning.space_mean_bytes),
        "end_space_bytes": cleaning.space_end_bytes,
        "deleted_bytes": cleaning.bytes_deleted,
        "segments": cleaning.segments_end,
        "records": cleaning.records_end,
        "tombstones": cleaning.tombstones_end,
        "begins": iso_time(cleaning.begin_ms),
        "ends": iso_time(cleaning.end_ms),
        "estimated": [*_OF_REPLAY, *_OF_CLEANING] if cleaning.bytes_estimated else [],
        "why_no_round": cleaning.why_no_round or None,
    }


def trial_text(trial: CleaningTrial) -> str:
    """Formats the settings of a trial, by Kafka's names."""
    texts = (f"{name}={value}" for name, value in sorted(trial.config.items()))
    return " ".join(texts) or "(as they are)"


def setting_row(setting: ReplaySetting) -> Row:
    """Formats the schedule of a replay, as the options name it."""
    if setting.WhichOneof("when") == "interval_ms":
        return {"when": f"every {_text_in(_TIMES_MS, setting.interval_ms)}"}
    return {"when": f"threshold {_text_in(_SIZES, setting.threshold_bytes)}"}


def _text_in(units: Mapping[str, int], value: int) -> str:
    """Formats a value in the largest unit of which it is a multiple."""
    texts = (f"{value // unit}{name}" for name, unit in units.items() if value % unit == 0)
    return next(texts) if value else "0"
