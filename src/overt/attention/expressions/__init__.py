"""One expression engine for FlexAttention's mods and scores of a caller's own: traced, lowered to programs over pairs, differentiated."""
