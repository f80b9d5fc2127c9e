"""Why a head looks where it looks: a score as a sum over what wrote its query and its key."""
