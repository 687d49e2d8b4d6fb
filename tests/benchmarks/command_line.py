"""Measures the processor time of `produce`, `import`, `read -o jsonl` and `explain`.

Two million messages (or `--messages`) of 40 bytes, each command in a process of its own: messages
for each second of that process. `explain` is about a key with half as many versions; its time is
the broker's, before and after a compaction. There is no baseline: `scripts/bench send` has the
rates of the client.
"""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report
from tests.support.command_line import command

_KEYS = 200_000
_KEY_TOPIC, _KEY = "one-key", "k"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def run(options: Options) -> Report:
    messages = options.messages_or(2_000_000)
    report = Report("command-line", "the command line, processor time")
    report.sizes = {"messages": messages}
    with options.fresh_folder() as folder, options.broker(compactor="inline") as broker:
        lines, rows = _write_inputs(folder, messages)
        for name, arguments, given in (
            ("produce -K", ["produce", "lines", "-K", ":"], lines),
            ("import JSON lines", ["import", str(rows), "--key", "id", "--topic", "rows"], None),
            ("read -o jsonl", ["read", "lines", "--until-end", "-o", "jsonl"], None),
        ):
            took_s = _processor_s(arguments, broker.url, given)
            report.add(name, messages / took_s, "messages/s")
        versions = max(messages // 2, 1)
        _publish_one_key(broker.url, versions)
        with Admin(broker.url) as admin:
            for name in ("explain", "explain, compacted"):
                before_s = _broker_s(broker.pid)
                admin.explain(_KEY_TOPIC, key=_KEY)
                report.add(f"{name}: {versions:,} versions", _broker_s(broker.pid) - before_s, "s")
                admin.trigger_compaction(_KEY_TOPIC)
                for _ in admin.watch_compaction(_KEY_TOPIC):
                    pass
    return report


def _write_inputs(folder: Path, messages: int) -> tuple[Path, Path]:
    """Writes KEY:VALUE lines and JSON lines."""
    lines, rows = folder / "lines.txt", folder / "rows.jsonl"
    with lines.open("w") as text, rows.open("w") as json_lines:
        for number in range(messages):
            key = f"k{number % _KEYS}"
            text.write(f"{key}:value {number} of some forty bytes of content\n")
            json_lines.write(f'{{"id":"{key}","price":{number % 97},"name":"item {number}"}}\n')
    return lines, rows


def _processor_s(arguments: list[str], url: str, given: Path | None) -> float:
    """Runs a command, and returns its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (given or Path(os.devnull)).open() as stdin, Path(os.devnull).open("w") as out:
        subprocess.run(
            [*command(*arguments), "--url", url], stdin=stdin, stdout=out, stderr=out, check=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _publish_one_key(url: str, versions: int) -> None:
    client = Client(url)
    producer = client.create_producer(_KEY_TOPIC, batching_enabled=True, block_if_queue_full=True)
    for number in range(versions):
        producer.send_async(b"%d" % number, None, partition_key=_KEY)
    producer.flush()
    client.close()


def _broker_s(pid: int) -> float:
    """Returns the processor time of the broker so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
