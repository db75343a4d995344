"""Tables of README.md and docs/, made from the files in lab/results by `chonn_lab.pages.tables`."""
