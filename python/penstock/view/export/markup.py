"""Markup that data cannot get into: text becomes markup in one place, where it is escaped.

``element`` escapes every child and every value that is not ``Markup`` already, and only this file makes ``Markup``.
"""

import base64
import hashlib
from html import escape

#: What an exported page looks like. No script, no font, no picture from elsewhere.
STYLE = """
:root{color-scheme:light dark;--line:#8884;--dim:#8888}
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem}
h1{font-size:1.2rem;overflow-wrap:anywhere}h2{font-size:1rem;margin:1.5rem 0 .3rem}
code,.tokens,td,pre{font-family:ui-monospace,monospace;font-size:13px}
.tokens{white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.9;border:1px solid var(--line);padding:.5rem}
.tokens span{border-right:1px solid var(--line);padding:1px 0}
.m0{opacity:.55}.k1{font-weight:bold}.k2,.k3{color:#b60}.k4{color:var(--dim)}.k5{background:#d33;color:#fff}
.s0{background:#4a90d922}.s1{background:#7cb34222}.s2{background:#f4b40022}.s3{background:#ab47bc22}.s4{background:#26a69a22}
.cut,.note{border-left:3px solid #d90;padding-left:.5rem}.error{color:#c33}.warning{color:#b60}
table{border-collapse:collapse}td,th{border-bottom:1px solid var(--line);padding:.2rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}
img{max-width:20rem;max-height:20rem}pre{white-space:pre-wrap}
"""
_VOID = ("img", "meta")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """An element with children, each escaped unless it is markup; ``class_`` is the attribute ``class``."""
    attribute_text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items()
    )
    if tag in _VOID:
        return Markup(f"<{tag}{attribute_text}>")
    return Markup(f"<{tag}{attribute_text}>{joined(*children)}</{tag}>")


def joined(*children: str) -> Markup:
    """Children beside each other."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def picture(data: bytes, type_: str) -> Markup:
    """A picture inside of the page. The type is one of ours, never what data claims."""
    return element("img", src=f"data:{type_};base64,{base64.b64encode(data).decode()}", alt="")


def page(title: str, *body: str) -> str:
    """A whole page that needs nothing else and may do nothing else."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width"),
        element("title", title),
        Markup(f"<style>{STYLE}</style>"),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body), lang='en')}\n"
