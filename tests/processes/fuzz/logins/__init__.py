"""Hostile logins: exchanges of TLS and SASL that are mutated or forged, against a broker process."""
