"""`python -m undirected` is the command `undirected`."""

import sys

from undirected.cli import main

if __name__ == "__main__":
    sys.exit(main())
