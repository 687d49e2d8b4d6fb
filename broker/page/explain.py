"""A key's history, as `explain` shows it (broker/explain). One request is served at a time."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ledgerfold.broker.explain.text import record_text
from ledgerfold.broker.http.answers import Refusal
from ledgerfold.broker.page.page_request import PageRequest, message_id_in
from ledgerfold.broker.page.rendering import Page
from ledgerfold.broker.rpc.admin_compaction import CompactionHandlers
from ledgerfold.broker.rpc.existing import stored_names
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.v1 import explain_pb2 as pb

VERSIONS_SHOWN = 200
KEY_CHARACTERS_MAX = 8 * 1024
WAYS = {
    "text": "Key",
    "base64": "Key in base64",
    "none": "Messages without a key",
    "id": "Message id",
}


class ExplainPage:
    def __init__(self, broker: Broker, compaction: CompactionHandlers) -> None:
        self._broker, self._compaction = broker, compaction

    async def show(self, requested: PageRequest) -> Page:
        """Shows the history of a key, `of`, whose form is `by`. Without a key, shows the form."""
        # Also without a question: a topic that does not exist has no form.
        topic, *_ = stored_names(self._broker, requested.topic)
        by, of = requested.text("by", "text"), requested.text("of")
        values: dict[str, Any] = {
            "topic": requested.topic,
            "by": by,
            "of": of,
            "ways": WAYS,
            "explained": None,
        }
        if of or by == "none":
            explained = await self._compaction.explain(_request(topic, by, of))
            newest = explained.versions[-VERSIONS_SHOWN:]
            left_out = explained.versions_older + len(explained.versions) - len(newest)
            values["explained"] = {
                "versions": [_version(each) for each in reversed(newest)],
                "older": left_out,
                "notes": list(explained.notes),
                "strategy": explained.strategy,
            }
        return Page("explain.html", f"Explain: {requested.topic}", values)


def _request(topic: str, by: str, of: str) -> pb.ExplainRequest:
    """Raises Refusal."""
    if len(of) > KEY_CHARACTERS_MAX:
        raise Refusal(400, f"On this page, a key has at most {KEY_CHARACTERS_MAX:,} characters.")
    if by == "text":
        return pb.ExplainRequest(topic=topic, key=of.encode())
    if by == "base64":
        try:
            return pb.ExplainRequest(topic=topic, key=base64.b64decode(of, validate=True))
        except binascii.Error as error:
            raise Refusal(400, f"This is not base64: {error}.") from None
    if by == "none":
        return pb.ExplainRequest(topic=topic, null_key=True)
    exact_id = message_id_in(of.strip() if by == "id" else "")
    return pb.ExplainRequest(topic=topic, message_id=exact_id)


def _version(version: pb.ExplainedVersion) -> dict[str, Any]:
    return {
        "id": record_text(version.id),
        "publish_ms": version.publish_time_ms,
        "event_ms": version.event_time_ms,
        "bytes": version.value_bytes,
        "place": _word(pb.VersionPlace.Name(version.place)),
        "state": _word(pb.VersionState.Name(version.state)),
        "what": version.what,
        "next": version.next,
        "words": version.words,
        "is_hidden": version.is_hidden,
    }


def _word(name: str) -> str:
    """Returns the last part of a name in the wire contract, as words: "above horizon"."""
    return " ".join(name.split("_")[2:]).lower()
