"""The plots of `what-if --plot FILE`: SVG, PNG, or an HTML page with the SVG.

They show the result of each strategy, as bars; the space over time, as a line per replay; and the
cost of each replay: rewritten bytes against bytes that a reader has to read. For a Kafka topic: the
space over time for each trial's settings, and rewritten bytes against peak space.

matplotlib, of the extra `plot`, draws them.
"""

from __future__ import annotations

import html
import importlib.util
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.what_if.rows import setting_row, strategy_text, trial_text
from ledgerfold.broker.common.sizes import format_size
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ledgerfold.v1.what_if_pb2 import CleaningReplay, Replay, TopicWhatIf

_ENDINGS = ("svg", "png", "html")
_PANEL_INCHES = (8.0, 3.2)
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
# Equal figures produce equal files.
_STYLE: Any = {"svg.hashsalt": "ledgerfold", "svg.fonttype": "none", "font.size": 9}


def check_plot(name: str) -> None:
    """Checks the file name and matplotlib before the analysis. Raises InvalidRequest."""
    if _ending(name) not in _ENDINGS:
        raise InvalidRequest(f"--plot {name}: the extension must be one of {', '.join(_ENDINGS)}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidRequest(
            "--plot needs matplotlib. Install Ledgerfold with its extra `plot`, from the same "
            "source: pip install 'WHEEL-OR-CHECKOUT[plot]'."
        )


def write_plot(name: str, results: Sequence[TopicWhatIf]) -> None:
    """Draws the plot into a file. Raises OSError."""
    ending = _ending(name)
    picture = _plot(results, "png" if ending == "png" else "svg")
    if ending == "html":
        title = html.escape("What if: " + ", ".join(each.topic for each in results))
        svg = picture[picture.index(b"<svg") :].decode()
        page = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>'
        picture = f"{page}\n{svg}</html>\n".encode()
    absolute_path(name).write_bytes(picture)


def _ending(name: str) -> str:
    return Path(name).suffix.lstrip(".").lower()


def _plot(results: Sequence[TopicWhatIf], kind: str) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = [(draw, each) for each in results for draw in _panels(each)]
    width, height = _PANEL_INCHES
    with mpl.rc_context(_STYLE):
        figure: Figure = Figure(figsize=(width, height * len(panels)), layout="constrained")
        rows = figure.subplots(len(panels), squeeze=False)
        for (draw, each), (axes,) in zip(panels, rows, strict=True):
            draw(axes, each)
        out = io.BytesIO()
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else {})
    return out.getvalue()


def _panels(result: TopicWhatIf) -> tuple[Callable[[Axes, TopicWhatIf], None], ...]:
    if result.cleanings:
        return (_spaces, _costs)
    return (_strategies, _spaces, _costs) if result.replays else (_strategies,)


def _strategies(axes: Axes, result: TopicWhatIf) -> None:
    forecasts = [each for each in result.forecasts if not each.not_forecast]
    names = ["(now)", *(strategy_text(each.strategy) for each in forecasts)]
    sizes = [result.input.bytes, *(each.bytes for each in forecasts)]
    at = range(len(names))
    bars = axes.barh(at, sizes, color=["0.7", *["C0"] * len(forecasts)])
    axes.bar_label(bars, [format_size(size) for size in sizes], padding=3)
    axes.set_yticks(at, names)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(f"{result.topic}: what a run would leave")
    _in_sizes(axes.xaxis)


def _spaces(axes: Axes, result: TopicWhatIf) -> None:
    replays: list[Replay | CleaningReplay] = [*result.replays, *result.cleanings]
    for replay in replays:
        times = [_moment(at.publish_time_ms) for at in replay.points]
        sizes = [at.bytes for at in replay.points]
        axes.plot(times, sizes, label=_label(replay), linewidth=1)  # type: ignore[arg-type]
    time = "the time of its records" if result.cleanings else "publish time"
    axes.set_title(f"{result.topic}: space over {time} (UTC)")
    axes.legend()
    axes.set_ylim(bottom=0)
    _in_sizes(axes.yaxis)


def _costs(axes: Axes, result: TopicWhatIf) -> None:
    for replay in result.replays:
        _mark(axes, replay, replay.rewind_mean_bytes)
    for cleaning in result.cleanings:
        _mark(axes, cleaning, cleaning.space_peak_bytes)
    if result.cleanings:
        axes.set_title(f"{result.topic}: what is rewritten, and the space that it takes")
        axes.set_xlabel("bytes rewritten by bytes appended")
        axes.set_ylabel("peak space")
    else:
        axes.set_title(f"{result.topic}: what is rewritten, and what a reader has to read")
        axes.set_xlabel("bytes rewritten by bytes published")
        axes.set_ylabel("mean rewind")
    axes.margins(0.2)
    axes.set_ylim(bottom=0)
    _in_sizes(axes.yaxis)


def _mark(axes: Axes, replay: Replay | CleaningReplay, size_bytes: float) -> None:
    point = replay.write_amplification, size_bytes
    axes.scatter(*point)
    axes.annotate(_label(replay), point, xytext=(5, 5), textcoords="offset points")


def _label(replay: Replay | CleaningReplay) -> str:
    from ledgerfold.v1.what_if_pb2 import CleaningReplay

    if isinstance(replay, CleaningReplay):
        return trial_text(replay.trial)
    return str(setting_row(replay.setting)["when"])


def _moment(time_ms: int) -> datetime:
    """Converts ms to a datetime, limited to the year 9999: a clock may have been wrong."""
    return datetime.fromtimestamp(min(time_ms / 1000, _LAST_SECOND), UTC)


def _in_sizes(axis: Any) -> None:
    axis.set_major_formatter(lambda size, _: format_size(size))
