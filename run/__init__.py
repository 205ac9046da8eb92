"""What happens when a run is started: build, loop, evaluation, directory, logger, results."""
