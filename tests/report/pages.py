"""What a test asks of a page in a browser."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def open_page(browser: Any, page: Path) -> None:
    """Open a page from its file; nothing may fail in it, and nothing may be asked for but the page."""
    browser.get_log("performance")
    browser.get(page.as_uri())
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]


@contextmanager
def phone(browser: Any, scheme: str = "light") -> Iterator[None]:
    """A screen of 390 pixels, light or dark."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
    try:
        browser.refresh()
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def overprinted(browser: Any) -> list[list[str]]:
    """Pairs of labels of one chart that lie over each other, by more than the margin around letters."""
    return browser.execute_script("""
        return [...document.querySelectorAll(".chart > svg")].flatMap((svg) => {
            const texts = [...svg.querySelectorAll("text")];
            const labels = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
            return labels.flatMap(([one, a], at) => labels.slice(at + 1)
                .filter(([, b]) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
                .map(([other]) => [one, other]));
        });""")
