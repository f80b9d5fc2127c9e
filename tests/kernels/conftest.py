"""Lets `make sanitize` put the watched build of the native core in the place of the installed one."""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

if "OVERT_NATIVE" in os.environ:
    _found = PathFinder.find_spec("overt._native", [os.environ["OVERT_NATIVE"]])
    assert _found is not None, f"no native core in OVERT_NATIVE={os.environ['OVERT_NATIVE']}"
    sys.modules["overt._native"] = importlib.util.module_from_spec(_found)
    _found.loader.exec_module(sys.modules["overt._native"])
