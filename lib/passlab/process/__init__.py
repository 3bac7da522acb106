"""What processes of the project say to each other."""
