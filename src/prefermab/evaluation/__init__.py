"""One trial, the comparison of policies on the same trials, and simulated programmes."""
