"""spirv: modules of SPIR-V, and models that were compiled to them."""
