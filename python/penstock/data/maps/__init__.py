"""Maps: functions of the user on rows, on tokens, and in front of a measure."""
