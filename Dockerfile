# The command line in a container; rows and models are in the folder that is mounted at /data:
#
#     docker build -t parkrr .
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" parkrr \
#         fit trips.parquet --target minutes -o minutes.park
#
# To leave out CUDA, which a container without a GPU does not need and which takes 5 GB, build with
# --build-arg PIP_EXTRA_INDEX_URL=... of an index with CPU builds of torch.
FROM python:3.12-slim AS build
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /parkrr
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/parkrr \
    && /opt/parkrr/bin/pip install --no-cache-dir torch==2.13.0 \
    && /opt/parkrr/bin/pip install --no-cache-dir '.[cli,plot]'

FROM python:3.12-slim
# Threads that spin while they wait make fits on shared cores 100 times slower.
ENV OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 KMP_BLOCKTIME=0 MPLCONFIGDIR=/tmp
COPY --from=build /opt/parkrr /opt/parkrr
RUN useradd --create-home parkrr
USER parkrr
WORKDIR /data
ENTRYPOINT ["/opt/parkrr/bin/parkrr"]
CMD ["--help"]
