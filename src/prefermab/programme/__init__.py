"""The programme side: tables, logs, plans and the record of a running programme.

Its folders are layers above those of the science, which import it only in `Model.plan` and
`Model.what_if`.
"""
