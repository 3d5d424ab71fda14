"""From files to a manifest: scanned in parallel, here or on Ray, resumable, the same wherever it runs."""
