"""Installed beside the package in the wheel for systems where the native core is not built."""

REASON = "the wheel for systems without one of their own, which is installed here, holds no native core"
