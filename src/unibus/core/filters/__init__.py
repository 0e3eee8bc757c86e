"""The filter language of Azure Service Bus: which messages of a topic a subscription gets, and how it changes them.

    text ──▶ tokens ──▶ parser ──▶ tree ──▶ compiling ──▶ predicates over expressions ──▶ matches(message)
                                    └──▶ printing, explaining

Everything here is pure: the result of a filter depends on the message only, and `newid()` gets its random value from an
argument. Texts are untrusted: parsing one takes time in proportion to its length, and returns a tree or raises
FilterInvalid; evaluating one returns yes or no, or raises EvaluationError.
"""
