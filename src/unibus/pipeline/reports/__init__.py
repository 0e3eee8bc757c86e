"""Reports for operators: each is one function from a session and a lake to an Answer.

| file | what it holds |
|---|---|
| `request`, `answer` | a request and its answer as data: columns with their meaning, rows, plots |
| `asking` | the table of all reports; other requests are rejected |
| `channels`, `latency`, `failures`, `stuck`, `consumers` | the reports |
| `sql`, `sql_text`, `sql_errors` | a SELECT of the user: which are allowed; errors of Spark in one line |
| `collecting`, `periods` | rows from Spark without loss of time zones; a period cut into equal pieces |
| `stopping` | cancels the work for a request: its time is over, or the client has disconnected |
| `tracing`, `bloom` | the path of one message, from the segments, without Spark |
| `status` | how far the lake is behind its sources, without Spark |
"""
