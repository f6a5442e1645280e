"""The runtime of a deployed artefact: errors, arrays, executors. Imports nothing of the
compiler."""
