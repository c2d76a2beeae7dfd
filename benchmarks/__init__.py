"""What the program's own speed is, as ratios with their spread: absolute times are those of one machine on one day."""
