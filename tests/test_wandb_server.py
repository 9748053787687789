"""Real sockets on this machine: one that answers, one that is silent, one that is shut."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from posenc.wandb_server import ask


def at(port: int) -> Any:
    """What `ask` needs of W&B: the address."""
    settings = SimpleNamespace(base_url=f"http://127.0.0.1:{port}")
    return SimpleNamespace(setup=lambda: SimpleNamespace(settings=settings))


class Refuses(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_that_answers_is_there_whatever_it_says():
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        ask(at(server.server_port), timeout=10)


def test_a_silent_server_is_given_up_after_the_time():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(OSError, match="timed out"):
        ask(at(silent.getsockname()[1]), timeout=0.2)


def test_nothing_at_the_address_is_named():
    with socket.create_server(("127.0.0.1", 0)) as shut:
        port = shut.getsockname()[1]
    with pytest.raises(OSError, match=f"127.0.0.1:{port} does not answer"):
        ask(at(port), timeout=10)
