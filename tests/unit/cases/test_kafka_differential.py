"""Random histories of Kafka logs: equal results are reported as equal, differences are found."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from tests.differential.kafka_duel import Difference, Duel
from tests.differential.kafka_generate import history
from tests.differential.kafka_local import LocalBroker
from tests.differential.kafka_product import LEFT_OUT, Product
from tests.differential.kafka_run import (
    EXIT_DIFFERS,
    EXIT_SAME,
    SNAPPY,
    explanation,
    is_not_copied,
    run_duel,
    told,
)
from tests.differential.kafka_subject import Answer, Model
from tests.model.kafka.cleaner import DOCUMENTED, KAFKA, Round
from tests.model.kafka.world import World
from tests.support.property_tests import examples


class Other(World):
    """The model in the oracle's place: it tells checksums, and turns a rule round if asked to."""

    def __init__(self, breaks: str = "") -> None:
        self._breaks = breaks
        super().__init__()

    def ask(self, request: Mapping[str, Any]) -> Answer:
        answer = super().ask(request)
        for batch in answer.get("batches", []):
            if isinstance(batch, dict):
                told = [batch[name] for name in ("base", "last", "horizon", "records")]
                batch["md5"] = hashlib.md5(str(told).encode()).hexdigest()
                if self._breaks == "bytes" and batch["size"] > 100:
                    batch["md5"] += str(len(self.manager.checkpoints))
        if self._breaks == "checkpoint" and "checkpoint" in answer:
            self.manager.checkpoints = dict.fromkeys(self.manager.checkpoints, 0)
        return answer


def _options(count: int) -> argparse.Namespace:
    return argparse.Namespace(seed=1, count=count, shrink=True)


def test_one_seed_makes_one_history() -> None:
    assert history(5) == history(5) != history(6)


def test_equal_results_are_reported_as_equal(capsys: pytest.CaptureFixture[str]) -> None:
    duel = Duel(World(), Other())
    for seed in range(1, 31):
        assert duel.compare(history(seed, compressed=False)) is None
    assert run_duel([Duel(Model(), Model())], _options(3)) == EXIT_SAME
    assert "3 histories (3 on the model): 3 same, 0 differ" in capsys.readouterr().out


@pytest.mark.parametrize("breaks", ["bytes", "checkpoint"])
def test_a_difference_is_found(breaks: str) -> None:
    duel = Duel(World(), Other(breaks))
    found = [duel.compare(history(seed, compressed=False)) for seed in range(1, 31)]
    assert any(each is not None and breaks.rstrip("s") in each.what + "byte" for each in found)


def test_a_wrong_rule_is_shown_by_a_short_history(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner that lets no superseded record go."""

    class Lazy(Model):
        def ask(self, request: Mapping[str, Any]) -> Answer:
            with monkeypatch.context() as patch:
                patch.setattr(Round, "_keeps", lambda *_: True)
                return super().ask(request)

    assert run_duel([Duel(Model(), Lazy())], _options(6)) == EXIT_DIFFERS
    shown = capsys.readouterr().out
    assert ": differs\n    " in shown
    assert " cleanup.policy=" in shown
    assert '{"op": "clean"}' in shown


def test_the_product_answers_as_the_model_does() -> None:
    """A whole broker, crashes included, with the worker's round: histories without codecs."""
    with closing(Product(LocalBroker())) as ours:
        duel = Duel(ours, Model())
        for seed in range(1, 1 + examples(12)):
            found = duel.compare(history(seed, compressed=False, leaves_out=ours.leaves_out))
            assert found is None or explanation(found), told(found)


def _sent_again(*, clean: bool) -> list[dict[str, Any]]:
    """Sends a batch of old records again, after the log was opened again and the batch is a day
    old.
    """
    append = {
        "op": "append",
        "log": "t-0",
        "records": [{"key": "a", "value": "1", "timestamp": 5}],
        "pid": 7,
        "epoch": 0,
        "sequence": 0,
    }
    return [
        {"op": "reset", "clock": 1_700_000_000_000},
        {"op": "create", "log": "t-0", "config": {"cleanup.policy": "compact"}},
        append,
        {"op": "reopen", "log": "t-0", "clean": clean},
        append,
        {"op": "clock", "advance": 90_000_000},
        append,
    ]


@pytest.mark.parametrize(
    "requests",
    [
        history(6590, leaves_out=LocalBroker.leaves_out | LEFT_OUT),
        _sent_again(clean=True),
        _sent_again(clean=False),
    ],
    ids=["6590", "resend", "resend-killed"],
)
@pytest.mark.parametrize("profile", [KAFKA, DOCUMENTED])
def test_the_product_emulates_kafkas_defects_on_request(
    profile: str, requests: list[dict[str, Any]]
) -> None:
    """Tests histories in which the two profiles differ."""
    with closing(Product(LocalBroker(profile))) as ours:
        for other in (KAFKA, DOCUMENTED):
            found = Duel(ours, Model(other)).compare(requests)
            assert (found is None) is (other == profile), told(found) if found else other


def test_known_differences_are_named() -> None:
    append = {"op": "append", "log": "t-0", "codec": "snappy"}
    sizes = Difference([append], 0, "info of t-0", {"size": 8}, {"size": 9})
    assert explanation(sizes) == SNAPPY
    assert not explanation(sizes._replace(history=[{"op": "append"}]))
    rewritten = Difference(
        [append, {"op": "clean"}],
        1,
        "answer",
        {"stats": {"bytesWritten": 8}},
        {"stats": {"bytesWritten": 9}},
    )
    assert explanation(rewritten) == SNAPPY
    assert not explanation(rewritten._replace(history=[{"op": "append"}, {"op": "clean"}]))
    assert not explanation(rewritten._replace(ours={"stats": {"messagesWritten": 8}}))


def test_a_missing_defect_is_told_apart_from_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model's two profiles differ in such defects alone."""
    monkeypatch.setattr(Model, "is_one_process", True)
    requests = history(6590, leaves_out=LEFT_OUT)
    documented = Duel(Model(DOCUMENTED), Model(KAFKA))
    found = documented.compare(requests)
    assert found is not None
    assert is_not_copied(documented, found)
    assert not is_not_copied(Duel(Model(KAFKA), Model(KAFKA)), found)
