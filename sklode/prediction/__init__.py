"""A fitted model: what it answers, how sure it is, and its file."""
