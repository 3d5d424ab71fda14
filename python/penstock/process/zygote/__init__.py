"""The zygote: a warm Python from which ranks are forked.

The agent starts ``__main__.py`` by its path, under the interpreter, the flags and the environment that the ranks would have. It imports
what ranks would import first (``preloading``), looks whether it may be forked (``rules``), and waits for requests (``serving``).
A forked rank makes itself a process of its own (``settling``) and then the user's program (``program``).

Only the standard library is used, and nothing of Penstock is imported: the interpreter may be one that does not know Penstock.
So the files are loaded under a private name, import each other relatively, and are forgotten before the user's program begins.
"""
