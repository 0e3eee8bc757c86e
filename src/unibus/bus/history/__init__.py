"""Operations on stored messages and on history: replay, trace, prune, delete, export and import."""
