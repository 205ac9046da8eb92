"""What tests share: command lines, batches, bad input, awkward environments."""
