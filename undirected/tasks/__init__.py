"""Tasks: data, training, evaluation and pictures for the experiments. Each needs `pip install 'undirected[tasks]'`."""
