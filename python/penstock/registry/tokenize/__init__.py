"""Text and conversations to tokens, and which of them count in the loss."""
