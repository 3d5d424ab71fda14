"""The browser views: a read-only JSON API and the bundle built from ``web/`` at the root.

``server`` answers requests, ``recordings`` turns event files into what a page shows. The bundle lies
in ``static/`` (built, not committed). Starlette and uvicorn come with the extra ``penstock[view]``
and are imported by ``server`` only, so that this package costs nothing until a server starts.
"""
