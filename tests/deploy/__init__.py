"""The files in `deploy/` and the Dockerfile, compared with the server that they are for."""
