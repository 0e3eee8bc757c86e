"""The shell that people import: MessageBus, its channels, groups and workers."""
