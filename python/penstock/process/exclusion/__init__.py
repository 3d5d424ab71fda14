"""Hosts that failed and are left out for a while: who a host is, what it has shown, and what follows from that."""
