"""Rendering only: text, tables, figures and pages of what analysis computed."""
