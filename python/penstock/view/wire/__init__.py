"""What crosses from Python to the browser: the answers of the web server, each declared once.

A declaration is a TypedDict: an answer stays the plain dictionary that ``--json`` and the terminal show too, and mypy holds
the code that makes it to its fields. ``schema`` turns all of them into one JSON schema, and ``workshop/wire.py`` makes of that the
types and the checks that pages are compiled with (``web/src/wire``). A field renamed here and nowhere else fails ``tsc``.
"""
