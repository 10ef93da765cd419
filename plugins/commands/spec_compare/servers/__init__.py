"""Servers that run already as contenders: asked by URL, timed on this side, compared with the first one."""
