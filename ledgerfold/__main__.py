"""`python -m ledgerfold`: the command line without the installed script."""

import sys

from ledgerfold.broker.cli.main import main

sys.exit(main())
