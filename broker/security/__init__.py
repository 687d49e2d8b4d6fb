"""Decides who may do what: certificates, credentials of clients, roles, permissions."""
