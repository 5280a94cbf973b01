"""Commands: the page, from the command line."""

from __future__ import annotations

import sys
import threading
from typing import Any

from undirected.tasks.command import Command, Report


def _demo_arguments(parser: Any) -> None:
    parser.add_argument("--host", type=str, default="127.0.0.1", help="127.0.0.1: only you; 0.0.0.0: all who reach you")
    parser.add_argument("--port", type=int | None, default=None, help="the first free one from 7860 on if not given")
    parser.add_argument("--images", type=str, default="mnist", metavar="MODEL", help="the network of the Images tab")
    parser.add_argument("--sequences", type=str, default="sequences", metavar="MODEL", help="that of the Sequences tab")
    parser.add_argument("--parser", type=str, default="toy-parser", metavar="MODEL", help="that of the Parser tab")
    parser.add_argument("--config", action="config", metavar="FILE", help="settings from a YAML file; flags come first")


def _demo(chosen: dict[str, Any]) -> Report:
    try:
        from undirected.app.page import page, serve
    except ImportError:
        raise ImportError("The page needs more packages: pip install 'undirected[app]'.") from None

    blocks = page(chosen["images"], chosen["sequences"], chosen["parser"])
    address = serve(blocks, chosen["host"], chosen["port"])
    print(f"Open {address} in a browser. Ctrl-C ends it.", file=sys.stderr, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        blocks.close(verbose=False)
    return Report("Ended.")


COMMANDS = [
    Command(("demo",), "Show a web page to play with.", "undirected demo --port 7860", _demo_arguments, _demo),
]
