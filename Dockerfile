# syntax=docker/dockerfile:1
# The server, compiled: docker build -t unibus . && docker run -p 127.0.0.1:5300:5300 -v unibus:/data unibus …
# The guide page docs/guide/deployment.md says what the last part can be; deploy/compose.yaml is a whole example.
ARG PYTHON=3.13-slim-bookworm

FROM python:${PYTHON} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src ./src
# Without the variable a build that cannot compile would give a package that is ten times slower.
ENV UNIBUS_REQUIRE_COMPILED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN pip wheel --wheel-dir /wheels ".[server]"

FROM python:${PYTHON}
# Only wheels come over: no compiler, no sources, no package index.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --disable-pip-version-check /wheels/*.whl
# Numbers, so that an orchestrator can see that it is not root. The folder gives a new volume its owner.
RUN groupadd --system --gid 10001 unibus \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin unibus \
    && install -d -o 10001 -g 10001 -m 0700 /data
# Listening on all addresses needs TLS and a key of your own, or --allow-networks: else the server refuses to start.
ENV UNIBUS_STORE=/data/unibus.db \
    UNIBUS_HOST=0.0.0.0 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 5300 5672
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ.get(\"UNIBUS_PORT\", 5300)}/servicebus/health/ready', timeout=4)"]
ENTRYPOINT ["unibus"]
CMD ["serve"]
