"""What an author of exercises uses: notebooks built from their source, answers, the proof of the checks."""
