"""Views: what people look at, in the browser and in the terminal.

A view reads what the floors below have written, and shows it. It never writes, and it never trusts
what it reads (V1): names and values inside a recording are data from elsewhere, so they cross to the
screen as text and never become markup, paths or code. Importing this package imports nothing else.
"""
