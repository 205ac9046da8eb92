"""What methods share: networks, running moments, particles, contrast, curiosity, prototypes, random
draws."""
