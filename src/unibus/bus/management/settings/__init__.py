"""Operations on settings: entities, access rules, declaration files, the status of a server."""
