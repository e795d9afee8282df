"""Logs in which most states are empty, because a state is only known when somebody looks.

In the order in which they are used:

- `histories`: consecutive rounds of each person, and the states that were seen in them
- `likelihood`: the likelihood of these states, marginalised over hidden rounds
- `hidden`: the fit, with its posterior
- `visits`: checks of the fit: prediction errors, and whether sightings depend on the state
- `page`: the first page and the report
"""
