"""What all commands share: output, errors, signals, input, time as people type it."""
