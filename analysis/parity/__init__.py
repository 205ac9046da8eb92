"""The authors' public code beside ours, on the same weights, batch and random numbers."""
