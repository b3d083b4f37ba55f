"""Benchmarks: one script a question, each printing one line of JSON a row.

Run them from the root of a checkout, for example `python -m benchmarks.sst --model treelstm`.
"""
