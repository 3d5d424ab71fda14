"""A run in the forms of others: TensorBoard, parquet, Perfetto, OTLP. Written as it grows, and nothing twice."""
