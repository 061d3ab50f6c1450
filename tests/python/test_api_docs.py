# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""docs/api.md is what tools/make_api_docs.py makes of the package."""

import importlib.util
from pathlib import Path

import kerf

ROOT = Path(__file__).parents[2]


def make_page():
    spec = importlib.util.spec_from_file_location("make_api_docs", ROOT / "tools/make_api_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.page()


def test_the_reference_is_what_the_docstrings_say():
    committed = (ROOT / "docs/api.md").read_text()
    assert committed == make_page(), "run: python tools/make_api_docs.py > docs/api.md"


def test_the_reference_names_everything_public():
    text = (ROOT / "docs/api.md").read_text()
    for name in kerf.__all__:
        assert name == "__version__" or f"### kerf.{name}\n" in text, name
