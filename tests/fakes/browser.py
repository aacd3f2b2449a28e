"""A headless Chromium on the dashboard: what a person does on a page, and pictures of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, Request, expect, sync_playwright

from probes.preflight import BROWSERS, installed_browser

WIDTH, HEIGHT = 1280, 800
TALLEST = 4400
COLOURS = 48
# A step of a page on a machine that does four other things at the same time.
PATIENCE_S = 60.0


class Dashboard:
    """One browser window that shows the dashboard.

    `strangers` collects addresses outside this machine that the page asked for, `errors` what the
    page's own scripts threw.
    """

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        self.strangers: list[str] = []
        self.errors: list[str] = []
        self._folder = folder
        page.on("request", self._asked)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _asked(self, request: Request) -> None:
        if request.url.startswith("http") and not request.url.startswith("http://127.0.0.1:"):
            self.strangers.append(request.url)

    def go(self, title: str) -> None:
        """Follow the sidebar's link to a page and wait for its title."""
        self.page.get_by_role("link", name=title, exact=True).click()
        self.heading(title)

    def heading(self, title: str) -> None:
        """Wait for a heading."""
        self._appears(self.page.get_by_role("heading", name=title, exact=True), PATIENCE_S)

    def press(self, label: str) -> None:
        """Press a button of the page, not one of Streamlit's own."""
        self.main.get_by_role("button", name=label, exact=True).click()

    def submit(self, label: str) -> None:
        """Press the button that sends a form."""
        self.page.get_by_test_id("stFormSubmitButton").get_by_role(
            "button", name=label, exact=True
        ).click()

    def fill(self, label: str, value: str) -> None:
        """Type into the field of this label, and leave it as a person does with Tab."""
        field = self.main.get_by_label(label, exact=True)
        field.fill(value)
        field.press("Tab")

    def choose(self, label: str, option: str) -> None:
        """Pick an option of a select box."""
        self.main.get_by_role("combobox", name=label).click()
        self.page.get_by_role("option", name=option).click()

    def shows(self, text: str, within_s: float = PATIENCE_S) -> Locator:
        """Wait for a text; what shows it first."""
        found = self.main.get_by_text(text).first
        self._appears(found, within_s)
        return found

    def _appears(self, wanted: Locator, within_s: float) -> None:
        """Wait for it, but no longer than until the page breaks."""
        broken = self.page.get_by_test_id("stException")
        expect(wanted.or_(broken).first).to_be_visible(timeout=within_s * 1000)
        assert not broken.count(), broken.first.inner_text()

    @property
    def main(self) -> Locator:
        """The page beside the sidebar."""
        return self.page.get_by_test_id("stMain")

    def settled(self) -> None:
        """Wait until the page's script has run and nothing on the page says that it broke."""
        app = self.page.get_by_test_id("stApp")
        expect(app).to_have_attribute("data-test-script-state", "notRunning")
        expect(self.page.get_by_test_id("stException")).to_have_count(0)
        expect(self.page.get_by_test_id("stSkeleton")).to_have_count(0)

    def photograph(self, name: str) -> list[Path]:
        """The whole page in light and in dark, as small PNG files of 1280 pixels' width."""
        made = []
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            self.settled()
            self._stretch()
            path = self._folder / f"{name}-{scheme}.png"
            self.page.screenshot(path=path, animations="disabled")
            _compress(path)
            made.append(path)
        self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        self.page.emulate_media(color_scheme="light")
        return made

    def _stretch(self) -> None:
        """Make the window as high as the page, which scrolls inside it."""
        height = self.main.evaluate("element => element.scrollHeight")
        self.page.set_viewport_size({"width": WIDTH, "height": min(max(HEIGHT, height), TALLEST)})
        self.settled()


def _compress(path: Path) -> None:
    """Few colours are enough for a page of text and lines."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def chromium() -> str:
    """The installed browser; without one the test skips and says what to install."""
    found = installed_browser()
    if found is None:
        pytest.skip(f"no browser ({', '.join(BROWSERS)}); Debian: apt-get install {BROWSERS[0]}")
    return found


@contextmanager
def dashboard(address: str, folder: Path) -> Iterator[Dashboard]:
    """A window on the dashboard at `address`; pictures go to `folder`."""
    program = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--disable-gpu"])
        expect.set_options(timeout=PATIENCE_S * 1000)
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en-GB"
        )
        page.set_default_timeout(PATIENCE_S * 1000)
        shown = Dashboard(page, folder)
        page.goto(address)
        yield shown
        browser.close()
