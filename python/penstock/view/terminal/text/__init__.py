"""What stands on a screen as lines, without any screen: flowing text, styles, search, a prompt."""
