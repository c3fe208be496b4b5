"""Tiny seeded cases whose outputs name a version of the code: see `counterveil_lab.fingerprints`.

A case takes nothing and gives numbers, texts, arrays, tables or containers of them. It uses nothing
random that it has not seeded, reads no file and no clock, and takes a second or two.
"""
