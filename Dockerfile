# syntax=docker/dockerfile:1
# The service and one engine in one image; ENGINE says which vLLM build (cpu or cuda).
FROM python:3.11-slim

RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends g++ libgomp1 libnuma1 make \
    && rm -rf /var/lib/apt/lists/*

ARG ENGINE=cpu
WORKDIR /opt/rooftune

# First what `make setup` depends on, so that a change of code installs nothing again. pip's settings (the CPU build
# of torch needs an index of its own) come as a build secret and stay in no layer.
COPY Makefile pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY advisor advisor
COPY api api
COPY dashboard dashboard
COPY db db
COPY probes probes
COPY samples samples
RUN --mount=type=secret,id=pip-conf,target=/etc/pip.conf make setup ENGINE=${ENGINE}

# An unprivileged user; the data folder is a volume of its.
RUN useradd --system --create-home --home-dir /var/lib/rooftune rooftune
USER rooftune
VOLUME /var/lib/rooftune
ENV ROOFTUNE_DATA_DIR=/var/lib/rooftune
CMD [".venv/bin/rooftune", "up"]
