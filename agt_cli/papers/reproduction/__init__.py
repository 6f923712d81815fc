"""The papers' figures and tables: definitions (experiments/*.yaml), the runs they need, and what is made of them."""
