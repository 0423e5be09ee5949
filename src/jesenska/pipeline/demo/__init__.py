"""The demo, run by `script/demo` (see `__main__.py`). It sends the real flights of 2013 through a broker, processes
them with a PySpark pipeline, and writes the results to topics."""
