"""The command `ledgerfold`, also as `python -m ledgerfold`.

It loads nothing before it handles an interruption.
"""

import sys


def main() -> int:
    """Runs the command line. Returns its exit code."""
    try:
        from ledgerfold.garbage import garbage_kept

        with garbage_kept():
            from ledgerfold.broker.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
