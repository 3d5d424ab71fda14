"""Hosts started by ssh: logins, what is logged in to later, and a goodbye."""
