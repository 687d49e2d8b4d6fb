"""The command line as `python -m ledgerfold`, without the installed script."""

import sys

from ledgerfold.broker.cli.main import main

sys.exit(main())
