"""The target that is this project's broker, through the ports of Pulsar's clients.

A command that answers JSON lines (oracle.py) gets the addresses of a broker of our own for {pulsar}
and {admin}; its answers are judged like those of our client.

    scripts/cases --oracle 'COMMAND {pulsar} {admin}'

Requests that Pulsar's protocols do not have are answered over gRPC: profiles and strategies,
restarts of the broker, and operations that the command does not support. Time passes in real time,
because a Pulsar client stamps its messages with the machine's clock. A restarted broker has other
ports, so the command is restarted as well: its open objects are lost, as the cases expect.

    >>> names_addresses("oracle {pulsar} {admin}"), names_addresses("oracle URL")
    (True, False)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cases.ledgerfold import Brokers, LedgerfoldTarget
from tests.cases.model import PROFILES, Case
from tests.cases.oracle import Answer, OracleTarget, UnknownOperation, settle
from tests.cases.protocol import Unsupported
from tests.support.broker_process import BrokerProcess

_PULSAR, _ADMIN = "{pulsar}", "{admin}"
_LISTEN = ("--pulsar-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
# The operations that the driver of another broker answers itself, and that this broker supports.
_OVER_GRPC = ("profile", "strategy", "retain-null-key")
# Cases that a Pulsar client cannot show in the profile `documented` (docs/NOT_EMULATED.md).
_OF_THE_CLIENT = {
    "RTE-19b": "The command's client opens no consumers with an inclusive start.",
    "RTE-17b": "A client of Pulsar does not tell the broker which view it began to read.",
}
_OF_A_LIFE = ("restart", "kill", "compact-outside")


def names_addresses(command: str) -> bool:
    """Returns whether the command is for a broker of our own."""
    return _PULSAR in command or _ADMIN in command


class DoorTarget(OracleTarget):
    """`ours` answers over gRPC, and ends with this target."""

    def __init__(self, command: str, ours: LedgerfoldTarget) -> None:
        self._template, self.ours = command, ours
        super().__init__(self._command())

    def ask(self, operation: str, /, **fields: Any) -> Answer:
        """Raises Refused, Unsupported."""
        if operation in _OF_A_LIFE:
            return self._begin_again(operation, **fields)
        if operation in _OVER_GRPC:
            return self.ours.ask(operation, **fields)
        try:
            return super().ask(operation, **fields)
        except UnknownOperation:
            return self.ours.ask(operation, **fields)

    def close(self) -> None:
        self.ours.close()
        super().close()

    def _begin_again(self, operation: str, /, **fields: Any) -> Answer:
        settle()
        super().close()
        try:
            return self.ours.ask(operation, **fields)
        finally:
            self._start(self._command())

    def _command(self) -> str:
        ready = self.ours.ready
        addresses = {_PULSAR: f"pulsar://{ready['pulsar']}", _ADMIN: f"http://{ready['admin']}"}
        command = self._template
        for name, address in addresses.items():
            command = command.replace(name, address)
        return command


class DoorBrokers(Brokers):
    """The processes that cases run on through `command`."""

    def __init__(self, folder: Path, command: str) -> None:
        super().__init__(folder)
        self._template = command

    def options_of(self, case: Case, profile: str = PROFILES[0]) -> tuple[str, ...]:
        if case.is_kafka:
            raise Unsupported("A Kafka topic is reached over gRPC only.")
        if case.number in _OF_THE_CLIENT and profile == PROFILES[0]:
            raise Unsupported(_OF_THE_CLIENT[case.number])
        return (*case.options, *_LISTEN)

    def target_of(self, broker: BrokerProcess) -> DoorTarget:
        return DoorTarget(self._template, LedgerfoldTarget(broker, self.compactor))
