"""What the pages for people have in common: colours, the unsafe line, and text from strangers made harmless."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import Any

INK, PALE, LINE, PAPER, GOOD, BAD, BLUE = "#1b1f24", "#57606a", "#d0d7de", "#f6f8fa", "#00684a", "#b3420d", "#0b5cad"

UNSAFE = "Graded without the whole sandbox (--unsafe): learners' code was not kept from this machine and its files."

CSS = f"""
*{{box-sizing:border-box}}
body{{margin:0;background:#fff;color:{INK};font:15px/1.55 system-ui,"Segoe UI",Helvetica,Arial,sans-serif}}
body>*{{max-width:64rem;margin:0 auto;padding:0 1.25rem}}
h1{{font-size:1.55rem;line-height:1.25;margin:2rem 0 .25rem}}
h2{{font-size:1.15rem;margin:2.2rem 0 .6rem}}
a{{color:{BLUE};text-underline-offset:2px}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}
th,td{{text-align:left;vertical-align:top;padding:.35rem .9rem .35rem 0;border-bottom:1px solid {LINE}}}
th{{font-weight:600;color:{PALE};font-size:.86rem}}
td.n,th.n{{text-align:right;white-space:nowrap}}
small,.pale{{color:{PALE}}}
pre,code{{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}}
.unsafe{{background:#fff4e5;border:1px solid #b3420d;border-radius:6px;color:#6b2a00;font-weight:600;
max-width:61.5rem;margin:1rem auto 0;padding:.5rem .9rem}}
.bar{{display:inline-block;width:7rem;height:.7rem;background:#e4e8ec;border-radius:3px;overflow:hidden;vertical-align:-1px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}}
.bar>i{{display:block;height:100%;background:{BLUE}}}
@media print{{body{{font-size:12px}}a{{color:inherit}}tr,figure,section{{break-inside:avoid}}}}
"""

_CONTROL = {code: None for code in range(32) if chr(code) not in "\t\n"} | {127: None}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def plain(value: Any) -> str:
    """Any text as text that can be written and shown: no colours of a terminal, no control characters."""
    text = "".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return _ANSI.sub("", text).translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


def esc(value: Any) -> str:
    """Any text as HTML that shows it."""
    return html.escape(plain(value))


def cut(text: str, most: int) -> str:
    """The first `most` characters, and how many there are."""
    return text if len(text) <= most else f"{text[:most]}\n… {len(text):,} characters in all"


def number(value: float | None) -> str:
    """Points as people write them; – where there are none yet."""
    return "–" if value is None else f"{round(value, 2):g}"


def bar(share: float) -> str:
    """A share of 1 as a bar; its number has to stand beside it."""
    return f'<span class="bar" aria-hidden="true"><i style="width:{100 * min(max(share, 0.0), 1.0):.0f}%"></i></span>'


def page(title: str, body: str, css: str = "", script: str = "", unsafe: bool = False) -> str:
    """A page that needs nothing from anywhere: it may run `script` and no other, load nothing, and send nothing."""
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" if script else "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"
    warning = f'<p class="unsafe" role="alert">{UNSAFE}</p>' if unsafe else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{esc(title)}</title><style>{CSS}{css}</style></head>\n"
        f"<body>{warning}{body}{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )
