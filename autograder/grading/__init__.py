"""From the submissions of a class to its gradebook."""
