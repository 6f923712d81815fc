"""What commands share: settings from a configuration, a finished run opened with its queries,
what a release spends.
"""
