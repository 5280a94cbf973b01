"""Page: all tabs, and the server that shows them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before gradio is imported: it asks home otherwise

import gradio as gr
from starlette.middleware import Middleware

from undirected.app.gate import Gate
from undirected.app.graph import graph_tab
from undirected.app.images import images_tab
from undirected.app.parser import TOY, parser_tab
from undirected.app.sequences import sequences_tab
from undirected.errors import QueryError

WAITING, TOGETHER, SESSIONS = 40, 2, 200  #: questions in the queue, questions at a time, visitors remembered
TITLE = "undirected: one network, any question"
SANS = ["system-ui", "Helvetica", "Arial", "sans-serif"]  # fonts of the visitor's own system
MONO = ["ui-monospace", "Menlo", "Consolas", "monospace"]
FIRST, LAST = 7860, 7959  #: ports that are tried when none is given


def page(images: str = "mnist", sequences: str = "sequences", parser: str = TOY) -> gr.Blocks:
    """The page with these models, not yet served."""
    with gr.Blocks(title=TITLE, analytics_enabled=False) as blocks:
        gr.HTML("<h1>undirected</h1><p>Networks without a direction: given any part, they find the rest.</p>")
        query = gr.State()
        with gr.Tabs():
            with gr.Tab("Images", id="images"):
                begun = images_tab(images, query)
            with gr.Tab("Sequences", id="sequences"):
                sequences_tab(sequences, query)
            with gr.Tab("Parser", id="parser"):
                parser_tab(parser, query)
            with gr.Tab("Graph", id="graph") as tab:
                graph_tab(tab, query, begun)
        query.value = begun
    return blocks


def serve(blocks: gr.Blocks, host: str = "127.0.0.1", port: int | None = None) -> str:
    """Show the page, in the background; its address. `blocks.close()` ends it."""
    chosen = _free(host, port)
    theme = gr.themes.Default(primary_hue="blue", font=SANS, font_mono=MONO)
    blocks.queue(max_size=WAITING, default_concurrency_limit=TOGETHER, api_open=False)
    _, address, _ = blocks.launch(
        server_name=host,
        server_port=chosen,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
        run_history=False,
        footer_links=[],
        max_file_size=1,
        state_session_capacity=SESSIONS,
        app_kwargs={"middleware": [Middleware(Gate)], "docs_url": None, "redoc_url": None, "openapi_url": None},
        theme=theme,
        css_paths=[Path(__file__).parent / "page.css"],
    )
    return address


def _free(host: str, port: int | None) -> int:
    """The port, if it can be had; without one, the first that can."""
    for candidate in range(FIRST, LAST + 1) if port is None else [port]:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, candidate))
            except OSError as error:
                reason = error.strerror
                continue
        return candidate
    ports = f"port {port}" if port is not None else f"any port from {FIRST} to {LAST}"
    raise QueryError(f"The page cannot have {ports} of {host} ({reason}). Choose another --port.")
