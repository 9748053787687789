"""Real sockets on this machine: one that answers, one that is silent, one that is shut."""

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from posenc.tracking.client import ping, within


class Refuses(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_server_that_answers_is_there_whatever_it_says():
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        ping(f"http://127.0.0.1:{server.server_port}", timeout=10)


def test_a_silent_server_is_given_up_after_the_time():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(OSError, match="timed out"):
        ping(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)


def test_nothing_at_the_address_is_named_without_a_password_in_it():
    with socket.create_server(("127.0.0.1", 0)) as shut:
        port = shut.getsockname()[1]
    with pytest.raises(OSError, match=f"^127.0.0.1:{port} does not respond"):
        ping(f"http://person:password@127.0.0.1:{port}", timeout=10)


def test_a_call_that_ends_in_time_gives_what_it_gives():
    assert within(10, lambda: 3) == 3


@pytest.mark.parametrize("error", [ValueError("wrong"), TimeoutError("its own"), SystemExit(1)])
def test_a_call_that_fails_in_time_fails_as_it_does(error):
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        within(10, fail)
    assert raised.value is error


def test_a_call_without_an_end_is_left_behind():
    ended = threading.Event()
    wait: Callable[[], Any] = ended.wait
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="timed out after 0.1 s"):
        within(0.1, wait)
    assert time.monotonic() - begun < 10
    ended.set()
