"""Speaks TLS in front of a server on this machine: `tls_front.py CERT KEY PORT` prints its own port and stays."""

import socket
import ssl
import sys
import threading


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    finally:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def serve(plain, context, port):
    try:
        client = context.wrap_socket(plain, server_side=True)
    except OSError:
        return
    server = socket.create_connection(("127.0.0.1", port))
    threading.Thread(target=copy, args=(server, client), daemon=True).start()
    copy(client, server)


def main():
    cert, key, port = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        plain, _ = listener.accept()
        threading.Thread(target=serve, args=(plain, context, int(port)), daemon=True).start()


main()
