"""GPU samples from Prometheus and compatibles."""
