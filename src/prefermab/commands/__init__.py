"""What the verbs of the command line do, a file for each group of them."""
