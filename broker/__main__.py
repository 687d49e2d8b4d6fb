"""`python -m broker`: the command line without the installed script."""

import sys

from broker.cli.main import main

sys.exit(main())
