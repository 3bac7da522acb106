"""Tools for authors of exercises: building notebooks from their source, answers, the proof of the checks."""
