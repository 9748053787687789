"""A stand-in for W&B's server on the loopback interface, which can also be slow, broken or gone."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.tracking.wandb_answers import Answer, StandIn

Fault = Callable[["Conversation"], bool]
"""What is done to a request instead of answering it; True if it is answered after all."""


def answers_500(conversation: "Conversation") -> bool:
    conversation.send_error(500)
    return False


def refuses(conversation: "Conversation") -> bool:
    conversation.send_error(403)
    return False


def cuts(conversation: "Conversation") -> bool:
    """Close the connection in the middle of a request."""
    conversation.connection.shutdown(socket.SHUT_RDWR)
    conversation.close_connection = True
    return False


def silent(conversation: "Conversation") -> bool:
    """Take the request and never answer, until the server ends."""
    conversation.home.ended.wait()
    return cuts(conversation)


def slow(conversation: "Conversation") -> bool:
    """Answer after three seconds."""
    return not conversation.home.ended.wait(3) or cuts(conversation)


class Conversation(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    home: StandIn

    def do_POST(self) -> None:
        body = self.body()
        if self.home.fault is not None and not self.home.fault(self):
            return
        if self.path == "/graphql":
            asked = json.loads(body)
            named = asked.get("operationName") or re.findall(r"(?:query|mutation)\s+(\w+)", asked["query"])[0]
            self.reply({"data": self.home.answer(named, asked.get("variables") or {})})
        elif found := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path):
            self.reply(self.home.stream(found[1], json.loads(body)))
        else:
            self.reply({})

    do_GET = do_PUT = do_HEAD = do_POST

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        blocks = []
        while size := int(self.rfile.readline(), 16):
            blocks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(blocks)

    def reply(self, content: Answer) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    """Says nothing when a client goes away in the middle of a sentence, and waits for nobody at its end."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        pass


@contextmanager
def stand_in(fault: Fault | None = None, then: Fault | None = None) -> Iterator[StandIn]:
    """A server for as long as the context lasts.

    Args:
        fault: what is wrong with it from the beginning.
        then: what goes wrong once a run has begun.
    """
    home = StandIn()
    home.fault, home.fault_then = fault, then
    with Quiet(("127.0.0.1", 0), type("Talk", (Conversation,), {"home": home})) as server:
        home.port = server.server_port
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield home
        finally:
            home.ended.set()
            server.shutdown()
