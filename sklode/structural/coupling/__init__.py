"""What columns of y tell of each other."""
