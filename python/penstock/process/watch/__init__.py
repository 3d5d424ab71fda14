"""What the workers of a job are doing: pulses, processes, processors, memory, GPUs."""
