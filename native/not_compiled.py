"""Installed beside the package where compiling the native core failed."""

REASON = "its C++ did not compile when overt was installed (pip install --verbose shows the compiler's messages)"
