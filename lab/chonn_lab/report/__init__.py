"""What finished runs show: tables, figures, and verdicts on claims.

`runs` reads result files into a table of models with statistics over seeds, `comparison` tests
differences, `claims` judges the paper's claims, `style` draws. `page` writes all of it as
``chonn-lab report`` does, by the macros of ``pages.md.j2``, which `chonn_lab.pages` uses as well;
`keep` puts runs into one file.
"""
