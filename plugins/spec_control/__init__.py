"""Control of draft length: who drafts, and how much, so that it costs no more than plain decoding."""
