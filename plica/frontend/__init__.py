"""frontend: models in; ONNX files (`plica.frontend.onnx`), and networks built here (`zoo`)."""
