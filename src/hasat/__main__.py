"""``python -m hasat`` is the same program as ``hasat``."""

from hasat.cli import main

if __name__ == "__main__":
    main()
