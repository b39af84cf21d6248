"""``python -m hasat`` is the same program as ``hasat``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it cleanly, even while it is loading."""
    try:
        from hasat.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
