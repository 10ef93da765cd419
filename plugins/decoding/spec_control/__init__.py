"""Control of draft length: which method drafts how many tokens, so that a run is hardly slower than plain decoding."""
