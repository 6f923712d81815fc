"""The curvature tube: one hidden layer trained by SGD, and how far k records move it: one scalar recursion."""
