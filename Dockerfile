FROM python:3.12.13-slim-trixie AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE CHANGELOG.md ./
COPY src src
RUN python -m venv /opt/suffice && /opt/suffice/bin/pip install --no-cache-dir -c constraints.txt '.[serve,otel,postgres,prices]'

FROM python:3.12.13-slim-trixie
RUN useradd --system --uid 10001 --home-dir /data suffice && install -d -o suffice -g suffice /data
COPY --from=build /opt/suffice /opt/suffice
ENV PATH=/opt/suffice/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8642
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=3s --start-period=120s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8642/health/live', timeout=2)"]
ENTRYPOINT ["suffice", "serve"]
CMD ["--config", "/etc/suffice/serve.toml"]
