"""Correctness: problems, the program in an answer, running it contained, and the grade. Knows nothing of requests' timing."""
