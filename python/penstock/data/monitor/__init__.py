"""What a feed says about itself: statistics, spread over shards, stalls, numbers for Prometheus."""
