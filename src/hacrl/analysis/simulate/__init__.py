"""What a training step would cost elsewhere: time, network and memory, from sizes and measured costs."""
