"""The verbs of ./x. One module per concern; standard library only."""
