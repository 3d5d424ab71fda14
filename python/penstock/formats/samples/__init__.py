"""Files of whole samples: WebDataset, MDS, TFRecord, ArrayRecord."""
