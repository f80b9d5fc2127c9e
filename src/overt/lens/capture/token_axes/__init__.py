"""Which dimensions of a tensor count tokens, and which layers mix them."""
