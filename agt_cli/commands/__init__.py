"""One thin module for each command: validate, call the library, write the record, say it."""
