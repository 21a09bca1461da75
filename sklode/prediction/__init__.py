"""A fitted model: what it answers at any time, how sure it is, and its file."""
