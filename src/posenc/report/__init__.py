"""Renders the results of `posenc.analysis` as text, tables, figures and pages."""
