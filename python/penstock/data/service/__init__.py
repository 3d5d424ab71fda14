"""The data service: batches made by other processes, fetched over TCP.

A batch is a pure function of recipe, plan, skips, lane and step, so a server keeps nothing about its clients: any server of a
recipe answers for any lane and step. A client whose server dies asks another one for the same step; nothing can be lost or
repeated. Without a service everything works the same: it moves work to other machines and changes no bit.
"""

from penstock.data.service.address import Service
from penstock.data.service.remote_feed import ServiceFeed, open_service
from penstock.data.service.server import DataServer, ServeOptions

__all__ = ["DataServer", "ServeOptions", "Service", "ServiceFeed", "open_service"]
