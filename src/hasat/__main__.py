"""``python -m hasat`` is the same program as ``hasat``."""

import sys


def main() -> None:
    """Run the command line; also while it is still being loaded, Ctrl-C is no accident."""
    try:
        from hasat.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
