"""``spec serve``: an HTTP server with the APIs of OpenAI, Anthropic and llama-server, over one run."""
