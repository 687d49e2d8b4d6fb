"""Checks of a broker's options before the start creates or announces anything.

gRPC reports an unusable address late, on standard error, with the same text for a port in use and
an invalid address. So these checks bind each address for a moment. If an address becomes unusable
after that, gRPC's error ends the start.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from pathlib import Path

from ledgerfold.broker.common.settings import ENGINES, BrokerSettings
from ledgerfold.broker.server.protection import check_protection
from ledgerfold.storage.errors import AddressInUse, InvalidRequest

_ADDRESS = re.compile(r"(?P<host>[^:\s]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535
# The servers that check the host of a request (broker/security/hosts.py).
_HTTP = ("--ui", "--admin-listen", "--metrics-listen")


def check_start(settings: BrokerSettings) -> None:
    """Raises InvalidRequest, AddressInUse, OSError."""
    _check_folder(settings.data_dir)
    taken = dict[str, str]()
    listens = {
        "--listen": settings.listen,
        "--metrics-listen": settings.metrics_listen,
        "--admin-listen": settings.admin_listen,
        "--pulsar-listen": settings.pulsar_listen,
        "--ui": settings.ui_listen,
    }
    for option, address in listens.items():
        if address is not None:
            _check_address(option, address)
            if address in taken and not address.endswith(":0"):
                raise InvalidRequest(
                    f"{option} {address}: {taken[address]} has that port; use another port."
                )
            taken[address] = option
    _check_pulsar(settings)
    if settings.ui_listen is None and settings.ui_writes:
        raise InvalidRequest("--ui-writes needs --ui.")
    if settings.ui_names and not any(listens[each] for each in _HTTP):
        raise InvalidRequest(f"--ui-host needs {', '.join(_HTTP[:-1])} or {_HTTP[-1]}.")
    check_protection(
        settings.security,
        {option: address for option, address in listens.items() if address is not None},
    )
    if settings.compaction_service is not None and ENGINES.get(settings.compactor) != "auto":
        raise InvalidRequest(
            f"--compaction-service {settings.compaction_service} replaces the worker: "
            f"omit --compactor {settings.compactor}."
        )
    if settings.compactor not in (*ENGINES, "off"):
        _check_compactor(settings.compactor)
    if settings.ready_file is not None:
        _check_ready_file(settings.ready_file, settings.data_dir)


def _check_pulsar(settings: BrokerSettings) -> None:
    advertised = settings.pulsar_advertise
    if advertised is not None:
        if settings.pulsar_listen is None:
            raise InvalidRequest("--pulsar-advertise needs --pulsar-listen.")
        match = _ADDRESS.fullmatch(advertised)
        if match is None or not 0 < int(match["port"]) <= _PORT_MAX:
            raise InvalidRequest(f"--pulsar-advertise {advertised}: use HOST:PORT.")


def temporary_path(ready_file: Path) -> Path:
    """Returns the path at which the file is written before it is renamed."""
    return ready_file.with_name(ready_file.name + ".tmp")


def _check_folder(data_dir: Path) -> None:
    for path in (data_dir, *data_dir.parents):
        if path.is_dir():
            return
        if path.exists():
            raise InvalidRequest(f"--data {data_dir}: {path} is not a directory.")


def _check_address(option: str, address: str) -> None:
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > _PORT_MAX:
        raise InvalidRequest(
            f"{option} {address}: use HOST:PORT, with 0.0.0.0 for every address of this "
            "machine and port 0 for any free port."
        )
    host = match["host"].strip("[]")
    try:
        addresses = socket.getaddrinfo(host, int(match["port"]), type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise InvalidRequest(f"{option} {address}: unknown host.") from error
    failures = [
        failure for each in addresses if (failure := _failure(each[0], each[4])) is not None
    ]
    for failure in failures:
        if failure.errno == errno.EADDRINUSE:
            raise AddressInUse(address, option) from failure
    # A name may have several addresses, some of them unavailable: one is enough.
    if len(failures) == len(addresses):
        if failures[0].errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            raise InvalidRequest(f"{option} {address}: not an address of this machine.")
        raise OSError(failures[0].errno, failures[0].strerror, f"{option} {address}")


def _check_compactor(address: str) -> None:
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) <= _PORT_MAX:
        raise InvalidRequest(f"--compactor {address}: use auto, spark, inline, off or HOST:PORT.")


def _failure(family: socket.AddressFamily, where: object) -> OSError | None:
    """Returns the error of listening there, if any."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC does: connections of an ended broker may linger.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)  # type: ignore[arg-type]
    except OSError as error:
        return error
    return None


def _check_ready_file(path: Path, data_dir: Path) -> None:
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not data_dir.exists() and data_dir in path.parents:
        return
    try:
        temporary_path(path).touch()
        temporary_path(path).unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
