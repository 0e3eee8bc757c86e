"""Administration of queues, topics, subscriptions, rules and access rules, by calls and by declaration files."""
