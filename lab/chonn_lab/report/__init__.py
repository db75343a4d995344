"""What finished runs show: statistics over seeds, tables, figures, and verdicts on claims.

`results` reads result files as studies, `comparison` tests differences over seeds, `tables` and
`figures` show them, `claims` judges the paper's claims, and `page` writes all of it as
``chonn-lab report`` does. `document` has the one function that makes a Markdown table.
"""
