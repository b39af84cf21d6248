"""PostgreSQL: the embedded server or a given one, the pool, the migrations.

May touch the folder `postgres` in HASAT_HOME and the database; knows nothing of what is stored.
"""

from hasat.store.migrate import MigrationSet
from hasat.store.store import Store, has_database, open_store

__all__ = ["MigrationSet", "Store", "has_database", "open_store"]
