"""Where handlers run (worker threads, event loops), and what happens when one does not simply return: retry,
dead-letter, reply."""
