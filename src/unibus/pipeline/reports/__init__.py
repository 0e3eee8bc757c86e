"""What operators ask a lake: each question is one function that gives an Answer, on whatever Spark it is asked.

| file | what it holds |
|---|---|
| `answer` | what an answer is: columns that say what they mean, rows, plots. Clients of a server know it too |
| `asking` | the table of the questions there are, with their options; nothing else can be asked |
| `channels`, `latency`, `failures`, `stuck`, `consumers` | the reports |
| `sql`, `sql_errors` | a SELECT of the user's; what Spark says of a wrong one, or of a lost file, in words |
| `stopping` | ends the work for a question: its time is over, or nobody waits any more |
| `tracing`, `bloom` | one message on its way, out of the segments, without Spark |
| `standing` | how far the lake is behind, without Spark |
"""
