"""What plugins share: public helpers, under the contract's version."""
