"""What a deployed artefact needs: errors, arrays, executors.  Imports nothing of the compiler."""
