"""What finished runs show: tables, figures, and verdicts on claims.

`runs` reads and keeps result files, as studies with statistics over seeds; `comparison` tests
differences, `claims` judges the paper's claims, `figures` draws. `page` writes a section of each
study, for ``chonn-lab report`` and for the docs; `tables` makes the docs' other tables, and `docs`
puts all of them there.
"""
