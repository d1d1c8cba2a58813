"""The lease: of several hooks that run, one may act; kept in memory, SQLite or PostgreSQL.

What the holder does is in `remediation.program`.
"""
