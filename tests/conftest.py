"""Options and fixtures that every test folder may use; what one folder needs stands in its own."""

from pathlib import Path

import pytest

pytest_plugins = ["tests.fakes.postgres", "tests.fakes.real_engine"]
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites golden files and fails, so that a stale one cannot pass.

    `--screenshots` names a folder for the pictures that the browser test takes.
    """
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files, then fail")
    parser.addoption("--screenshots", metavar="FOLDER", help="keep the pages' pictures there")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first, so that two workers end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public reference data beside the checkout; without it a test skips."""
    if not SHARED.is_dir():
        pytest.skip(f"no folder {SHARED.name}/ beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether golden files are to be rewritten (the test that rewrites one must then fail)."""
    return bool(pytestconfig.getoption("--update-golden"))
