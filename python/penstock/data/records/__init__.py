"""Records: samples that are no tokens (arrays, bytes, text, nested values), through the same plan as tokens.

A record is planned as a pack of one sample, so order, lanes, cursors, skips and schedules are those of every feed. What is
different is how a batch is made: Rust says which samples a step has, and here they are fetched, decoded, mapped and put together.
"""

from penstock.data.records.record_batch import RecordBatch

__all__ = ["RecordBatch"]
