"""The main job on real data: flights of 2013 through a broker, a PySpark pipeline and out again. `script/demo` runs it
(see `__main__.py`)."""
