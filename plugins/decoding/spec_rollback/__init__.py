"""Owners of recurrent state: they restore it after rejected drafts. One file each."""
