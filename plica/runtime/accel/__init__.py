"""The runtime of artefacts with accelerator parts: device descriptions and simulators."""
