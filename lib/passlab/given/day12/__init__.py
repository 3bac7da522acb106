"""What day 12 gives to the process that runs its answers."""
