"""What a model is, whatever its file says it in: sizes and flags of a decoder, and its rotary frequencies."""
