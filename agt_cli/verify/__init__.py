"""What agt verify does: a folder that somebody handed over, checked without being trusted."""
