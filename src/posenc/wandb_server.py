"""Whether W&B's server is there."""

import ssl
import urllib.error
import urllib.request
from typing import Any


def ask(wandb: Any, timeout: float) -> None:
    """Return once W&B's server has answered, with whatever status.

    W&B's own requests are not left to find out: one that is given up after its time may keep the process from ever
    ending, since what tells W&B's service to stop can be lost with it (seen with wandb 0.31).

    Args:
        wandb: the module, which knows the server's address.
        timeout: seconds to wait.

    Raises:
        OSError: if nothing answers in time.
    """
    request = urllib.request.Request(wandb.setup().settings.base_url, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=timeout).close()
    except urllib.error.HTTPError:
        return  # it answered
    except (urllib.error.URLError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):  # it answered, with a certificate that W&B may know and we do not
            raise OSError(f"{request.host} does not answer: {reason}") from error
