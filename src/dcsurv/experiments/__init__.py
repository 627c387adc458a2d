"""The paper's tables and figures, and experiments over splits, models and seeds."""
