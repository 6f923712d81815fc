"""What certified training is compared with: DP-SGD, plain SGD, perturbed ERM, randomised labels, students; noise in AGT."""
