"""The refusal, by itself: the process that builds modules reads them without torch."""


class Refused(ValueError):
    """What cannot travel, and where it stands: a sentence that may be shown to the learner."""
