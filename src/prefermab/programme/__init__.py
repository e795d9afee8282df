"""The programme side: tables, logs, plans and the record of a running programme.

It builds on the science half: `prefermab` without this folder, `cli`, `service` and `bench`. The
science half imports it only in `Model.plan` and `Model.what_if`.
"""
