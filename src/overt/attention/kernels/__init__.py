"""How attention is computed: which path (`plan`), and the paths themselves."""
