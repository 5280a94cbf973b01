"""Graph: the factor graph of the network that was just asked, and the plan of the question."""

from __future__ import annotations

from html import escape

import gradio as gr

from undirected.app.figures import card, says, scroll
from undirected.app.query import Query
from undirected.draw import draw

#: What became of the messages that a naive unrolling would compute.
FATES = {
    "computed": "new",
    "hoisted": "come only from what is observed, which never changes: computed once",
    "reused": "depend on nothing that has changed since: computed before",
    "skipped": "come from variables that are still zero",
    "pruned": "belong to updates that nothing wanted depends on",
}


def show(query: Query) -> str:
    """The pictures of a query, as HTML."""
    plan = query.plan
    given = [*plan.observed, *plan.partial]
    rows = "".join(
        f"<tr><td>{getattr(plan.savings, fate)}</td><th>{fate}</th><td>{words}</td></tr>"
        for fate, words in FATES.items()
    )
    saved = f'<table class="fates">{rows}</table>'
    about = f"Observed: {', '.join(given) or 'nothing'}. Wanted: {', '.join(plan.want)}."
    return "".join(
        [
            card("The question", says(query.words), says(about)),
            card(
                "The network", scroll(str(draw(query.net, given))), note="Circles are variables, squares are factors."
            ),
            card(
                "The plan",
                saved,
                scroll(str(draw(plan))),
                f'<details><summary>In words</summary><pre class="plan">{escape(str(plan))}</pre></details>',
                note=f"What becomes of the {plan.savings.naive} messages that a naive unrolling would compute.",
            ),
        ]
    )


def graph_tab(tab: gr.Tab, query: gr.State, begun: Query) -> None:
    """Build the tab. It shows the last question that this visitor asked."""
    gr.HTML("<p>What the network did to answer your last question, in whichever tab you asked it.</p>")
    shown = gr.HTML(show(begun), elem_id="graph")
    tab.select(show, query, shown, api_visibility="private", show_progress="hidden")
