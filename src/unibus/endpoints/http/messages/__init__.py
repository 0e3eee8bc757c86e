"""The data plane: send, receive, settle, peek, sessions."""
