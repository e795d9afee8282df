"""The verbs of the command line: each is a dataclass whose fields are its options.

The documentation of a field is its help. JAX is imported by the verb that needs it, so that help is
instant.
"""
