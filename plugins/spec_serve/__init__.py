"""``spec serve``: an HTTP server with the APIs of OpenAI and llama-server, over one run."""
