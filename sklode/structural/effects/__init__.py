"""Effects of X, of the calendar, and of other columns of y after a delay."""
