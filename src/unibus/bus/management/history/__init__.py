"""Operations on history: events, traces, SQL queries."""
