"""Ways of running a model: the fastest that agrees with the plain forward is chosen per model."""
