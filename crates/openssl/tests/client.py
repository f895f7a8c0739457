"""Asks a server of TLS whose certificate is for `reader` for its page. The certificates and the address are arguments."""

import socket
import ssl
import sys

context = ssl.create_default_context(cafile=sys.argv[1])
with socket.create_connection(sys.argv[2].rsplit(':', 1)) as plain:
    with context.wrap_socket(plain, server_hostname='reader') as secured:
        secured.sendall(b'GET / HTTP/1.0\r\n\r\n')
        print(ssl.OPENSSL_VERSION, secured.version(), secured.recv(15))
