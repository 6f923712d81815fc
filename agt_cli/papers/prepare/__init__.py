"""From raw data that a user has to the folders of arrays that ``dataset=embeddings`` reads; one module for each source."""
