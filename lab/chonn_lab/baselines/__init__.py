"""Neural operators of other papers, and controls, which CHONN models are compared with."""
