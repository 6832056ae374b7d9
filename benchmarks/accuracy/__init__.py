"""How well a model reads pages whose content is known: `python -m benchmarks.accuracy`."""
