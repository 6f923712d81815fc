"""``agt unlearn``: a request comes in, a run's state is replaced, an account goes out."""
