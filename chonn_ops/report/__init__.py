"""What finished runs show: statistics over seeds, tables, figures, verdicts and the page of all.

`results` reads result files as studies, `roles` finds the models in them that stand for something,
`comparison` says what their seeds can tell. From these `tables` and `figures` are made, `claims`
are judged on them, `scoreboard` lists the verdicts, and `page` is all of it as ``chonn report``
writes it.
"""
