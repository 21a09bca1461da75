"""Components of a structural model, and the state space that they make."""
