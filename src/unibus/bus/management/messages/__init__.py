"""Operations on messages: peek, move, remove, send, receive, settle, replay, export, import, relay."""
