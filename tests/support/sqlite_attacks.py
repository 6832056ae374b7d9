"""What a SQLite file from somebody else may hold."""

from __future__ import annotations

ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select cast(x as blob) key, x answer from c"
"""A query without an end, with the columns of a cache."""
