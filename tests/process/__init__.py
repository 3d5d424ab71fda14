"""Jobs of real processes: started, killed in every place, and looked for afterwards."""
