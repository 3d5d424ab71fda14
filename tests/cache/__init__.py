"""The host cache, with real servers, real processes and real kills."""
