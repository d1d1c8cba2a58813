"""Asking servers over HTTP with limits and secrets by reference."""
