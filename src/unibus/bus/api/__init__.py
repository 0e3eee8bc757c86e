"""The classes that users and protocol servers call: MessageBus, SyncMessageBus, Broker, and the runtime below them."""
