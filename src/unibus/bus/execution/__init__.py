"""Where handlers run (worker threads, event loops), and what follows when one does not simply return."""
