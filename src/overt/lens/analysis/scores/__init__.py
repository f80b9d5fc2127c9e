"""The score of a head as a sum over the parts that wrote its query and its key."""
