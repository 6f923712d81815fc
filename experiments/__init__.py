"""What reproduces the papers: baselines, encoder, raw data prepared, figures and tables;
NAME.yaml is one data set's.
"""
