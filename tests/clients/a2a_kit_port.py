"""A plugin for the compatibility kit of A2A: its webhooks listen on the port `TCK_WEBHOOK_PORT`, which the venue may call."""

import os

from tck.webhook import server


class FixedPort(server.HTTPServer):
    def __init__(self, address, handler):
        super().__init__((address[0], int(os.environ["TCK_WEBHOOK_PORT"])), handler)


server.HTTPServer = FixedPort
