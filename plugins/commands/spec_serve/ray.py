"""The application for Ray Serve: ``serve run spec_serve.ray:app model=zoo:pico methods=ngram replicas=2``."""

from spec_ray.serving import app as app
