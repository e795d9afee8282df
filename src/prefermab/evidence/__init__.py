"""What a log proves: how well the fit foretells rounds it has not seen, what it is unsure of, and
how a model fares beside what was done."""
