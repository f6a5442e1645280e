"""`python -m plica.cli` is the command line, as `python -m plica` is."""

import sys

from plica.cli import main

if __name__ == "__main__":
    sys.exit(main())
