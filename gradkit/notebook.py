"""The panel and the views that it is made of."""
