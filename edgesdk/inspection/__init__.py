"""Say what a model file is."""
