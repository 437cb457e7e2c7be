"""A plugin of proxy.py (PyPI): names that end with `.proxied.example` are at 127.0.0.1, as in a network whose proxy alone
knows names. `python -m proxy --plugins named_proxy.Names`."""

from proxy.http.proxy import HttpProxyBasePlugin


class Names(HttpProxyBasePlugin):
    def resolve_dns(self, host, port):
        name = host.decode() if isinstance(host, bytes) else host
        return ("127.0.0.1" if name.endswith(".proxied.example") else None), None
