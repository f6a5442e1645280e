"""What an artefact with parts on an accelerator needs: the device as data, and its simulator."""
