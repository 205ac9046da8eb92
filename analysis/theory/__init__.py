"""The three studies of theory: Theorem 1, the AnInfoNCE toy, structural conflict."""
