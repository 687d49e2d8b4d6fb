#!/usr/bin/env python
"""Writes the settings that the environment has, PULSAR_PREFIX_name=value, to the file it is given.

    PULSAR_PREFIX_maxMessageSize=1048576 apply-config-from-env.py conf/standalone.conf

Testcontainers' modules for Pulsar call it before `pulsar standalone`.
"""

import os
import sys
from pathlib import Path

PREFIX = "PULSAR_PREFIX_"

settings = sorted(
    f"{name.removeprefix(PREFIX)}={value}\n"
    for name, value in os.environ.items()
    if name.startswith(PREFIX)
)
Path(sys.argv[1]).write_text("".join(settings))
