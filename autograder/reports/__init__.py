"""What instructors and learners read after grading: feedback, the report on the class, files for other systems."""
