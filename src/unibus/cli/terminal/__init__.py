"""What all commands share: output, errors, signals, input, times and durations on the command line."""
