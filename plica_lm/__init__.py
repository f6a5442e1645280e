"""Language models on Plica: weight formats, checkpoints, decoding and serving.

The compiler never imports this package; what it needs of the compiler is general there.
"""
