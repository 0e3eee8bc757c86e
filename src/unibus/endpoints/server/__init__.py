"""The server process: started and stopped in order."""
