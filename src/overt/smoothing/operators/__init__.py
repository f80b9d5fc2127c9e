"""How curves depend on their series: operators that compose, and the rows of each kind of head."""
