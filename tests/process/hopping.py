"""A rank with a child that ends all the time and leaves a successor each time: whoever looks for its number is too late."""

import os
import signal

if os.fork():
    signal.pause()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hops = os.open(os.path.join(os.environ["MARKS"], "hops"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    os.write(hops, b".")
    if os.fork():
        os._exit(0)
