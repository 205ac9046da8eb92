"""The command line: one clear line for every mistake, and what each key may hold."""
