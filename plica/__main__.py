"""`python -m plica` is the command line."""

import sys

from plica.cli import main

if __name__ == "__main__":
    sys.exit(main())
