"""The programme side: tables, logs, plans and the record of a running programme.

Built on the science half (everything in `prefermab` outside this folder and `cli`), which never
imports it.
"""
