"""The filter language of Azure Service Bus: which messages of a topic a subscription wants, and what it makes of them.

    text ──▶ tokens ──▶ parser ──▶ tree ──▶ compiling ──▶ conditions over terms ──▶ matches(message)
                                    └──▶ printing, explaining

Everything here is pure: a filter asks nothing but the message it is given, and `newid()` draws from an argument. Texts
come from outside, so reading one takes steps in proportion to its length and ends in a tree or in FilterInvalid, and
evaluating one ends in yes, no or EvaluationError.
"""
