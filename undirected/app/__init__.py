"""App: a web page to play with the networks. It runs on your own machine and fetches nothing from elsewhere."""
