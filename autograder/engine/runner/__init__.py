"""The learner's side of the engine: confined processes that run notebooks."""
