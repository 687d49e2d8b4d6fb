# A broker with its compactor, which is reached as Pulsar's standalone image is.
#
#   docker build --tag ledgerfold .
#   docker build --tag ledgerfold:inline --build-arg SPARK=no .     without Java and Spark: compacts inline
#   docker run --rm -p 127.0.0.1:6650:6650 -p 127.0.0.1:8080:8080 -v ledgerfold:/data ledgerfold
#
# 6650: Pulsar's binary protocol. 8080: the admin REST API, and metrics. 7650: gRPC, for the client of
# this package. 7680: the page for browsers.
# The broker does not authenticate clients (--insecure in scripts/image/pulsar), unless settings say so
# (docs/SECURITY.md): publish the ports on 127.0.0.1, or on a network of trusted clients.

# Any image with apt-get and `python` 3.11 or newer.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ARG SPARK=yes
WORKDIR /source
# Dependencies have a layer of their own, which a change of the source leaves as it is.
COPY pyproject.toml requirements.lock ./
# The versions of requirements.lock, without what only tests and builds need.
RUN sed -E '/^ +(--hash|#)/d; s/ *\\$//' requirements.lock > /constraints.txt
RUN python -m venv /opt/ledgerfold
RUN python -c 'import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
        extra = [] if sys.argv[1] == "no" else project["optional-dependencies"]["spark"]; \
        print(*project["dependencies"], *extra, sep="\n")' "$SPARK" > /dependencies.txt \
    && /opt/ledgerfold/bin/pip install --no-cache-dir --constraint /constraints.txt --requirement /dependencies.txt
COPY . .
RUN /opt/ledgerfold/bin/pip install --no-cache-dir --no-deps . \
    && /opt/ledgerfold/bin/pip check

FROM ${BASE}
ARG SPARK=yes
RUN if [ "$SPARK" = no ]; then java=; else java=openjdk-17-jre-headless; fi \
    && apt-get update \
    && apt-get install --yes --no-install-recommends tini $java \
    && rm -rf /var/lib/apt/lists/*
# Spark and the JVM keep files of theirs in the home directory.
RUN useradd --uid 10000 --create-home ledgerfold \
    && install --directory --owner 10000 --mode 0700 /data \
    && install --directory --owner 10000 /pulsar/conf
COPY --from=build /opt/ledgerfold /opt/ledgerfold
# What Testcontainers' modules for Pulsar run.
COPY scripts/image /pulsar/bin
ENV PATH=/opt/ledgerfold/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /pulsar
USER 10000
VOLUME /data
EXPOSE 6650 8080 7650 7680
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s \
    CMD ["/pulsar/bin/healthy.py"]
# It ends what the broker's worker leaves behind, and passes signals on.
ENTRYPOINT ["tini", "--"]
CMD ["/pulsar/bin/pulsar", "standalone"]
