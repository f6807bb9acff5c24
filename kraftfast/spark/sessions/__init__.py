"""Sessions of Spark for kraftfast, what its Python workers need, and what went wrong there."""
