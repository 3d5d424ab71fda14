"""Jobs of many hosts: each host has a network, processes, /tmp and /dev/shm of its own, on this machine."""
