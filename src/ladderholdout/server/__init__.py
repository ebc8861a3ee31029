"""Holdouts over HTTP: accounts and tokens, the API, the pages, and what starts the server.

Only `answers`, `app`, `pages` and `running` import FastAPI and uvicorn.
"""
