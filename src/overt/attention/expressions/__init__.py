"""One engine for FlexAttention's mods and callers' scores: it traces them, lowers them to programs over pairs, and differentiates these."""
