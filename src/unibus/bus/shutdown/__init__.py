"""Closing a bus: the steps in order (steps.py), who runs them (closing.py), which messages they wait for
(unhandled.py), and the end of a program that did not close its bus (at_exit.py)."""
