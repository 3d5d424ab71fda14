"""Text: JSON, tables, plain lines and documents, compressed or not, in any encoding."""
