"""What agt doctor does: whether this machine and this folder are fit for agt, and what to do where they are not."""
