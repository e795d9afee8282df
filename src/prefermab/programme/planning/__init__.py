"""A round's plan for a table of people: who gets what, why, and under which rules."""
