"""A document as one HTML file: style, plotly and figures are inside, nothing is fetched."""

import html
import json
from collections.abc import Iterator
from typing import assert_never

from plotly.offline import get_plotlyjs

from api.documents.blocks import Block, Bullets, Document, Paragraph, Picture, Table

# Nothing may be fetched, whatever a text of the report contains.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --page: #fff;
  --alert: #fff4e5; --head: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #a3abb5; --line: #363c44; --page: #0e1117; --alert: #33270f;
    --head: #1a1f27; } }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem; color: var(--ink);
  background: var(--page); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { margin: .5rem 0; }
.alert { background: var(--alert); border-left: 4px solid #D55E00; padding: .4rem .8rem; }
.caption, .missing { color: var(--soft); font-size: .87rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; margin: .5rem 0; width: 100%;
  overflow-wrap: break-word; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); }
th { background: var(--head); font-weight: 600; }
summary { cursor: pointer; color: var(--soft); font-size: .87rem; }
figure { margin: 0; }
@media print {
  details { display: none; } h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""
# Figures carry no colours of text and grid; they take the page's, also when it turns dark.
SCRIPT = """
const dark = window.matchMedia('(prefers-color-scheme: dark)');
function draw() {
  const ink = dark.matches ? '#e6e8eb' : '#1b1f24';
  const grid = dark.matches ? '#363c44' : '#d0d7de';
  const page = dark.matches ? '#0e1117' : '#ffffff';
  const axis = {gridcolor: grid, linecolor: grid, zerolinecolor: grid, ticks: ''};
  const look = {layout: {font: {color: ink, size: 13, family: 'system-ui, sans-serif'},
    xaxis: axis, yaxis: axis, hoverlabel: {bgcolor: page, font: {color: ink}}}};
  for (const place of document.querySelectorAll('[data-figure]')) {
    const held = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    Plotly.react(place, held.data, {...held.layout, template: look},
      {responsive: true, displayModeBar: false});
  }
}
draw();
dark.addEventListener('change', draw);
"""


def as_html(found: Document) -> str:
    """The whole document as one file that needs no network."""
    blocks = [*found.lead, *(block for section in found.sections for block in section.blocks)]
    drawn = [item.chart for item in blocks if isinstance(item, Picture) and item.chart.figure]
    figures = "\n".join(
        f'<script type="application/json" id="figure-{html.escape(chart.key)}">'
        f"{_embedded(chart.figure)}</script>"
        for chart in drawn
    )
    scripts = f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script>" if drawn else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(found.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{html.escape(found.title)}</h1>
{_body(found)}
{figures}
{scripts}
</body>
</html>
"""


def _body(found: Document) -> str:
    parts = [part for block in found.lead for part in _block(block)]
    for section in found.sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts += [part for block in section.blocks for part in _block(block)]
    return "\n".join(parts)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text=text, alert=alert):
            mark = ' class="alert"' if alert else ""
            yield f"<p{mark}>{html.escape(text)}</p>"
        case Bullets(items=items):
            lines = "".join(f"<li>{html.escape(item)}</li>" for item in items)
            yield f"<ul>{lines}</ul>"
        case Table():
            yield _table(block)
        case Picture():
            yield from _picture(block)
        case _:
            assert_never(block)


def _picture(picture: Picture) -> Iterator[str]:
    chart = picture.chart
    yield f"<h3>{html.escape(chart.title)}</h3>"
    if chart.figure is None:
        yield f'<p class="missing">{html.escape(chart.missing or "")}</p>'
        return
    key = html.escape(chart.key)
    yield (
        f'<figure><div data-figure="figure-{key}"></div>'
        f'<figcaption class="caption">{html.escape(chart.caption)}</figcaption></figure>'
    )
    table = _table(Table(columns=chart.columns, rows=chart.rows))
    yield f"<details><summary>The same figures as a table</summary>{table}</details>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    inner = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table>{inner}</table></div>'


def _embedded(value: object) -> str:
    """JSON inside a script element: a text in it cannot end the element."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")
