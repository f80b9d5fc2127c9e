"""How attention is computed: the choice of a path (`plan`), and the paths."""
