"""Speed and memory of operators, blocks and models beside their peers; see `chonn-lab bench`."""
