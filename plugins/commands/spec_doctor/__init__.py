"""``spec doctor``: reads a draft head in every way that its file allows, and says what it accepts, costs and gains."""
