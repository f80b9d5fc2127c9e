"""Parts shared by several layers."""
