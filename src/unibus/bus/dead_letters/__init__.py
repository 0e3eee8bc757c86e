"""Operations on dead-lettered messages: list, retry, redirect, edit and discard them, singly or by a filter."""
