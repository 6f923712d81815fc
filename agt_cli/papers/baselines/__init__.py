"""What certified training is compared with: DP-SGD, perturbed ERM, randomised labels, noise in AGT; plain SGD."""
