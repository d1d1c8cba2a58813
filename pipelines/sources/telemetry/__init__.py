"""GPU samples as text: exporters, nvidia-smi, saved or scraped."""
